"""Heads that learn to rank passages from groups of a question and its passages."""
