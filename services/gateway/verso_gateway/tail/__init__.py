"""The live tail of a log collection: its lines from acceptance on, as server-sent events."""
