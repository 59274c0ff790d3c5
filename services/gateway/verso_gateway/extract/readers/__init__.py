"""One module a family of formats; each has ``read``, and is imported where files are read only."""
