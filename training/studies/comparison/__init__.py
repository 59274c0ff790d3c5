"""Decoders that differ in one thing, trained for the same small time of a processor, side by side.

- `texts`: log lines and short texts, cut in time, with tokens of three vocabularies;
- `arms`: what differs;
- `runs`: one after the other, each goes on where it stopped; a table and one line of JSON.
"""
