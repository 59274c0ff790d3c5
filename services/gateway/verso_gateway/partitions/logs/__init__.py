"""Read lines of a log collection with partitions by time, as of one collection."""
