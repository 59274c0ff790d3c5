"""The stores of the worker: vectors (embedded or on a Qdrant server), terms, and backups."""
