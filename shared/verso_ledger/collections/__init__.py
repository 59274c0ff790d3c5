"""What collections hold, in the ledger: documents, lines of logs, fitted tables."""
