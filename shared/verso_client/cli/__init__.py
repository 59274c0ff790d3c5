"""The `verso` command line."""


def main() -> None:
    """Run the command line."""
    from verso_client.cli.app import main as run

    run()
