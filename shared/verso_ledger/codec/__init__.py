"""Arguments and replies of the ledger's steps, for both clients."""
