"""Run the training service: ``python -m verso_training.service``."""

import sys

from verso_core.interpreter import loading

with loading():
    from verso_training.service.main import main

if __name__ == "__main__":
    sys.exit(main())
