"""Whatever a caller sends, the gateway answers with a result or a clear error of the caller's."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.verso_gateway.conftest import Gateway, Hand

_PATHS = [
    "/v1/ingest",
    "/v1/embed",
    "/v1/embeddings",
    "/v1/search",
    "/v1/reconstruct",
    "/v1/collections",
]
_STRINGS = st.text(max_size=20) | st.sampled_from(
    ["default", "\ud800", "\x00", "a#1", "-1", "YQ=="]
)
_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_FIELDS = (
    "collection documents id text text_base64 metadata time texts query encoding input model "
    "dimensions encoding_format vector vectors ids limit filter time_gte with_text beam max_tokens "
    "name precision"
)
_KEYS = st.sampled_from(_FIELDS.split())
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _STRINGS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_KEYS | _STRINGS, inner, max_size=4)
    ),
    max_leaves=12,
)
_DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "id": _STRINGS,
        "text": _STRINGS | _VALUES,
        "text_base64": _STRINGS | _VALUES,
        "metadata": st.dictionaries(_STRINGS, _NUMBERS | _STRINGS | _VALUES, max_size=3) | _VALUES,
        "time": _NUMBERS | _STRINGS | _VALUES,
    },
)
_VECTOR = st.lists(_NUMBERS, max_size=5) | _VALUES
_NEARLY_RIGHT = st.one_of(
    st.builds(dict, documents=st.lists(_DOCUMENT | _VALUES, max_size=5)),
    st.builds(dict, texts=st.lists(_STRINGS, min_size=1, max_size=5)),
    st.builds(dict, input=_STRINGS | st.lists(_STRINGS, min_size=1, max_size=5), model=_STRINGS),
    st.builds(
        dict, query=_STRINGS, filter=st.builds(dict, metadata=st.dictionaries(_STRINGS, _VALUES))
    ),
    st.builds(dict, vector=_VECTOR, limit=_NUMBERS),
    st.builds(dict, id=_STRINGS),
    st.builds(dict, ids=st.lists(_STRINGS, min_size=1, max_size=5)),
    st.builds(dict, vectors=st.lists(_VECTOR, min_size=1, max_size=3), beam=_NUMBERS),
)
_BODIES = _NEARLY_RIGHT | st.dictionaries(_KEYS, _VALUES, max_size=5) | _VALUES


@settings(
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=st.sampled_from(_PATHS), body=_BODIES)
def _answers(gateway: Gateway, path: str, body: object) -> None:
    answer = gateway.client.post(
        path,
        content=json.dumps(body).encode("ascii"),
        headers={"Content-Type": "application/json", "Prefer": "wait=0"},
    )
    assert answer.status_code in (200, 202, 400, 404, 422), answer.text
    assert answer.json()


def test_no_body_is_a_fault_of_ours(
    valkey_url: str, hand: Hand, start_gateway: Callable[..., Gateway]
) -> None:
    gateway = start_gateway(valkey_url, queue_limit_slices=10**6)
    _answers(gateway)
