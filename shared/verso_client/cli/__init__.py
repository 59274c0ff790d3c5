"""The `verso` command line."""

import sys

from verso_core.interpreter import loading


def main() -> None:
    """Run the command line."""
    try:
        with loading():
            from verso_client.cli.app import main as run

        run()
    except KeyboardInterrupt:  # while modules are loaded: the command itself says more
        sys.exit("interrupted: nothing was done")
