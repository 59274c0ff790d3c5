"""Training data: public texts, their chunks, and the prepared files of tokens and vectors."""
