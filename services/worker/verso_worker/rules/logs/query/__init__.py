"""What a log collection is asked besides its lines: volume, labels, statements."""
