"""The sections of the page with the results of the studies."""
