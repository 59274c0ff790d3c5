"""Run the gateway: ``python -m verso_gateway``."""

import sys

from verso_core.interpreter import loading

with loading():
    from verso_gateway.main import main

if __name__ == "__main__":
    sys.exit(main())
