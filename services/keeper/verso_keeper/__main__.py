"""Run the keeper: ``python -m verso_keeper``."""

import sys

from verso_core.interpreter import loading

with loading():
    from verso_keeper.main import main

if __name__ == "__main__":
    sys.exit(main())
