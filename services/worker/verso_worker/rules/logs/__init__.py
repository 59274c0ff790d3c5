"""Log collections: ingest lines, read them in order, search statements, delete and merge."""
