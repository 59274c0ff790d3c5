"""The `verso` command line."""

from verso_core.interpreter import loading


def main() -> None:
    """Run the command line."""
    with loading():
        from verso_client.cli.app import main as run

    run()
