"""Codecs that turn a chunk's bytes into a payload and back, byte for byte, on every machine.

- `ranks`: the entropy layer of the neural codec (ranks among the decoder's logits)
- `ngram`: a static byte n-gram model
- `zstd`: Zstandard frames with a dictionary and no header
- `mixture`: the n-gram model mixed with a collection's own texts
- `logs`: lines of log collections in blocks
- `coder`: the binary arithmetic coder under all but `zstd`, and how the integer loops are compiled

Table fitting lives beside the coding it serves, so that both change together.
"""
