"""The command line without an installed `verso`: ``python -m verso_client``."""

from verso_client.cli import main

if __name__ == "__main__":
    main()
