"""Routes for those who operate the platform: its state, and the scrub."""
