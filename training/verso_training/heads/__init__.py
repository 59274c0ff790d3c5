"""Heads: models that read the encoder or its vectors to classify, answer and score.

A head changes nothing that is stored. It names the space whose vectors or tokens it reads and
ships as a folder of its own; training and serving meet in that folder only.
"""
