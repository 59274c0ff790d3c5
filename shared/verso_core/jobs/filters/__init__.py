"""Filters: which documents a search, list, count, facet or delete is about.

A filter is a tree of JSON objects, each of one of these forms:

    {"and": [F, ...]}   {"or": [F, ...]}   {"not": F}
    {"field": "host", "eq": "a"}

Operators of a leaf are ``eq ne in gt gte lt lte exists prefix``. A leaf with several of them is the
``and`` of one leaf for each. ``{}`` holds for every document.

**Fields.** ``time`` and ``id`` are the document's own; every other name is a metadata key, nested
keys joined by dots. ``metadata.KEY`` is always the metadata key, also of one named ``time``.

**Values of a field** (:func:`verso_core.texts.values_of`): a scalar is one value, a list is its
elements, null is none. A missing field, null, an object and an empty list have no value.

**Operators**, for a field with the values V:

1. ``eq x`` holds if some v in V equals x; ``in`` if one of its values is equal to some v. Types do
   not mix: 1 is not "1", true is not 1. Numbers are equal by value, so 1 is 1.0; but an integer of
   2**53 or beyond, which float64 may not hold, equals nothing but the same integer.
2. ``ne x`` is the negation of ``eq x``: it holds for a document without the field.
3. ``gt gte lt lte`` hold if some number in V is on that side of the bound. Strings and booleans are
   on no side, nor are integers of 2**53 or beyond. A bound is taken as float64.
4. ``prefix`` holds if some string in V begins with it: code point by code point, with its case.
5. ``exists`` true holds if V is not empty. Null in ``eq``, ``ne`` and ``in`` stands for no value:
   ``eq null`` is ``exists false``.

``time`` has numbers only (Unix seconds; a filter may say RFC 3339 instead), ``id`` strings only.

A metadata key may itself have dots: "a.b" is the key "a.b" as well as b within a.

``compiled.compiled`` reduces a filter to four tests under ``and``, ``or`` and ``not``. Vector
stores translate those, and ``compiled.matches`` is the reference that they are compared with.
"""
