"""Group vectors and log lines."""
