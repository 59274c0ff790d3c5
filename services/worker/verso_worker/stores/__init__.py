"""Where vectors, words and backups are kept."""
