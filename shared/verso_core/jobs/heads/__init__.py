"""Jobs that ask heads, one module each, and the list of heads itself."""
