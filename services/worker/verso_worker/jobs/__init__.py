"""Take slices from the ledger, run them, and commit their results."""
