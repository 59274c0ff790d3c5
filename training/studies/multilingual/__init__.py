"""A multilingual artifact of multilingual-e5-small, and what it finds in other languages."""
