"""Similarity and duplicates: models of two texts."""
