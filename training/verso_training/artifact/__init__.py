"""Artifacts: export, publish and evaluate one, and fit one to a collection's own texts."""
