"""Routes that agents send log records to, one module a protocol, and the live tail of lines."""
