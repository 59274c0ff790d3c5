"""Filters and metadata for property tests, of few words, so that they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SCALARS: tuple[Any, ...] = (
    *("a", "ab", "b", "A", "", "\x01true", "\x01", "\x01i9", "ü", "1", "1.0", "true", 'q"\\%'),
    *(True, False, 0, 1, -1, 2, 1.0, 2.5, -0.5, 1e300),
    *(2**53 - 1, 2**53, 2**53 + 1, float(2**53), 2**60, 2**63 - 1, -(2**60), 1e-300),
)
FIELDS = ("host", "code", "a.b", "a", "x.y.z", "time", "metadata.time", 'odd "key".\\%22', "none")
KEYS = ("host", "code", "a.b", "time", 'odd "key".\\%22')


def metadata() -> st.SearchStrategy[dict[str, Any]]:
    values = st.one_of(
        st.sampled_from(SCALARS), st.none(), st.lists(st.sampled_from((*SCALARS, None)), max_size=3)
    )
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(KEYS, values),
            "a": st.one_of(values, st.fixed_dictionaries({}, optional={"b": values})),
            "x": st.fixed_dictionaries({"y": st.fixed_dictionaries({}, optional={"z": values})}),
        },
    )


def filters() -> st.SearchStrategy[dict[str, Any]]:
    old = st.fixed_dictionaries(
        {},
        optional={
            "metadata": st.dictionaries(
                st.sampled_from(KEYS),
                st.one_of(st.sampled_from(SCALARS), st.lists(st.sampled_from(SCALARS), max_size=3)),
                max_size=2,
            ),
            "time_gte": st.sampled_from((0.0, 1.5, 2.0)),
            "time_lt": st.sampled_from((1.5, 2.0)),
        },
    )
    return st.recursive(
        st.one_of(_leaves(), _times(), _ids(), old),
        lambda inner: st.one_of(
            st.fixed_dictionaries({"and": st.lists(inner, max_size=3)}),
            st.fixed_dictionaries({"or": st.lists(inner, max_size=3)}),
            st.fixed_dictionaries({"not": inner}),
        ),
        max_leaves=5,
    )


def _leaves() -> st.SearchStrategy[dict[str, Any]]:
    fields = st.sampled_from([field for field in FIELDS if field != "time"])
    numbers = st.sampled_from([one for one in SCALARS if type(one) in (int, float)])
    values = st.sampled_from((*SCALARS, None))
    return st.one_of(
        st.fixed_dictionaries({"field": fields, "eq": values}),
        st.fixed_dictionaries({"field": fields, "ne": values}),
        st.fixed_dictionaries({"field": fields, "in": st.lists(values, max_size=5)}),
        st.fixed_dictionaries({"field": fields, "exists": st.booleans()}),
        st.fixed_dictionaries(
            {"field": fields, "prefix": st.sampled_from(("a", "\x01", "1", "ü"))}
        ),
        st.fixed_dictionaries({"field": fields, "gt": numbers}, optional={"lte": numbers}),
        st.fixed_dictionaries({"field": fields, "gte": numbers}, optional={"lt": numbers}),
    )


def _times() -> st.SearchStrategy[dict[str, Any]]:
    times = st.sampled_from((0, 1.5, 2, "1970-01-01T00:00:02Z"))
    return st.one_of(
        st.fixed_dictionaries({"field": st.just("time"), "gte": times}, optional={"lt": times}),
        st.fixed_dictionaries({"field": st.just("time"), "in": st.lists(times, max_size=3)}),
        st.fixed_dictionaries({"field": st.just("time"), "exists": st.booleans()}),
    )


def _ids() -> st.SearchStrategy[dict[str, Any]]:
    ids = st.sampled_from(("doc1", "doc2", "doc10", "none"))
    return st.one_of(
        st.fixed_dictionaries({"field": st.just("id"), "in": st.lists(ids, max_size=3)}),
        st.fixed_dictionaries({"field": st.just("id"), "prefix": st.just("doc1")}),
        st.fixed_dictionaries({"field": st.just("id"), "ne": ids}),
    )
