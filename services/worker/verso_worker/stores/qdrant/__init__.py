"""The vector store on a Qdrant server."""
