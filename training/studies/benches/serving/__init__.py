"""What serving costs: the encoder, the ledger, publication."""
