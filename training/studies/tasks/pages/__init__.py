"""The sections of the page that say what the studies found."""
