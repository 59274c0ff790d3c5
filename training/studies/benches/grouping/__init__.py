"""Which records belong together, and how fast they are grouped."""
