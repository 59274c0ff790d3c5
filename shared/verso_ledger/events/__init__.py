"""What the ledger publishes: ends and changes of jobs, accepted lines, messages, new work."""
