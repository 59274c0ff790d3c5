"""The embedded vector store: a process of its own, and its client."""
