"""Texts as records: chunks, vectors, patches, points."""
