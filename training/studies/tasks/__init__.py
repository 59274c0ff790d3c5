"""Tasks of the papers, trained on the artifact's encoder for their figures; nothing here ships."""
