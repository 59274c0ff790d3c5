"""Routes that agents send log records to, one module a protocol."""
