"""Writing lines into log collections: which of them are text, and the segments of the others."""
