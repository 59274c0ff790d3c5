"""Kernels of the rank stream: from logits to ranks, to decisions, and back (see `ranks`).

Writing lists decisions (bit, probability) for the arithmetic coder. Fitting uses the same writer
with tables of node numbers in place of probabilities, and counts which node saw which bit; so
fitting cannot drift from coding.
"""
