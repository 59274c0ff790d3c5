"""Published experiments repeated on the artifact's encoder; nothing of them ships."""
