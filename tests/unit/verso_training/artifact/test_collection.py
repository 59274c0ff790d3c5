"""Which dictionary a collection gets."""

import random

from verso_codecs.zstd import ZstdCodec
from verso_training.artifact import collection


def _lines(count: int) -> list[bytes]:
    rng = random.Random(5)
    return [
        b"GET /v1/documents/%d took %d ms on node-%d" % (rng.randrange(10**6), at % 90, at % 7)
        for at in range(count)
    ]


def test_the_chosen_dictionary_is_no_worse_than_the_artifacts_own() -> None:
    chunks, own = _lines(200), b"GET /v1/documents/ took ms on node-"
    dictionary, held_out = collection.best_dictionary(chunks, own=own)
    last = chunks[-int(collection.HELD_OUT * len(chunks)) :]
    codec = ZstdCodec(own)
    assert held_out <= sum(len(codec.encode(chunk)) for chunk in last) / len(last)
    assert all(ZstdCodec(dictionary).decode(ZstdCodec(dictionary).encode(c)) == c for c in last)


def test_where_nothing_is_like_the_rest_the_artifacts_own_dictionary_stays() -> None:
    rng = random.Random(6)
    chunks = [rng.randbytes(60) for _ in range(40)]
    own = b"".join(chunks[-10:])
    assert collection.best_dictionary(chunks, own=own)[0] == own
