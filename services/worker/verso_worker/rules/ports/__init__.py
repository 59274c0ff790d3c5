"""What the pipeline needs from outside: models, heads, the vector store, the ledger's documents.

The pipeline owns these protocols; the adapters implement them and never import one another. Each
adapter repeats the signatures, so that the type checker compares them.
"""
