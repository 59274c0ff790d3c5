"""Cold storage: what is hardly read, in an object store instead of the ledger's memory."""
