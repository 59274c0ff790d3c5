"""The decoder: its network, its loss and its training run."""
