"""Question answering in the thesis: output layers, students and their settings."""
