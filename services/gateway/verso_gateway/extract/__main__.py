"""Read files for a gateway: ``python -m verso_gateway.extract SECONDS MEMORY_BYTES``."""

from __future__ import annotations

import signal
import sys

from verso_gateway.extract.child import Bounds, serve


def main() -> None:
    """Serve until standard input ends."""
    # Ctrl-C reaches the gateway as well, which first finishes the open requests.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seconds, memory_bytes = sys.argv[1:]
    bounds = Bounds(float(seconds), int(memory_bytes))
    serve(sys.stdin.buffer, sys.stdout.buffer, bounds)


if __name__ == "__main__":
    main()
