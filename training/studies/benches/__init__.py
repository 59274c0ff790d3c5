"""Benches whose question is answered: a page of docs/research or a decision cites each.

They share tables, texts and record sets with the benches in tests/bench, so run them with both
folders:

    PYTHONPATH=training:tests/bench python -m studies.benches.codecs.bench_margin
"""
