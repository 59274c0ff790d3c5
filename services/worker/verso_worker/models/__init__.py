"""The artifacts and heads that are served, and how new ones are taken up."""
