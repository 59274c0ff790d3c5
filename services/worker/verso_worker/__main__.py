"""Run the worker: ``python -m verso_worker``."""

import sys

from verso_core.interpreter import loading

with loading():
    from verso_worker.main import main

if __name__ == "__main__":
    sys.exit(main())
