"""Routes that list, train and promote models."""
