"""Intent detection: adapters and means of their seeds, and texts outside every known intent."""
