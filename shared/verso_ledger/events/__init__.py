"""What the ledger publishes: the ends and changes of jobs, and that there is work."""
