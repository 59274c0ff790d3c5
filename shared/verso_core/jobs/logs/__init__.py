"""Jobs on log collections: lines taken in, read, found, followed and managed."""
