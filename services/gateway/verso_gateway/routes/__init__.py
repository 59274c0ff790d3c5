"""The resources of the API, one module each; each has a ``router``."""
