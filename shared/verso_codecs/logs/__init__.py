"""The codec of log collections: lines in blocks of up to 128.

- `parsing`: lines into shapes and the values in their slots
- `shapes`: the table of a collection's shapes, and their text for template mining
- `blocks`: lines of a stream into a block that is decoded alone, and back
- `tables`: what a block is coded with, learnt from the collection's own lines
- `filters`: which values occur in a block
- `times`: the time of every line
- `lines`: which lines hold some bytes, and lines put together again
- `model`, `values`, `dates`: kernels under them

Nothing is compiled by an import; a kernel is compiled at its first call.
"""
