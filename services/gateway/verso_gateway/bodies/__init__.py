"""Request bodies: how much of them is accepted, and how they are read and checked."""
