"""Run the receiver of syslog: ``python -m verso_gateway.syslog``."""

import sys

from verso_core.interpreter import loading

with loading():
    from verso_gateway.syslog.main import main

if __name__ == "__main__":
    sys.exit(main())
