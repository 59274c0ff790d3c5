"""What a head, words or a comparison without training change in the order of a search."""
