"""What a log collection does of what collections do: lines in blocks, and records beside them.

Lines that are text and documents with ids of their own are records. Every operation here joins what
is found of both.
"""
