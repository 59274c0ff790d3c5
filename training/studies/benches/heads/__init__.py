"""What the shipped heads do through a running platform."""
