"""What is tried again, how long, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from verso_client.exchange import Call, Pause, Reply, Retries, perform
from verso_core.errors import CollectionUnknown, QueueFull, Unavailable, VersoError

CALL = Call("GET", "/v1/collections")
DONE = Reply(200, {}, b"{}")
FULL = Reply(429, {"retry-after": "2"}, b'{"code": "queue_full", "detail": "full"}')
UNKNOWN = Reply(404, {}, b'{"code": "collection_unknown", "detail": "no such"}')


def play(
    call: Call, retries: Retries, answers: Sequence[Reply | VersoError]
) -> tuple[Reply, list[float]]:
    """Carry the steps out with scripted answers; returns the reply and the pauses."""
    steps = perform(call, retries)
    pauses: list[float] = []
    script = iter(answers)
    step = next(steps)
    try:
        while True:
            if isinstance(step, Pause):
                pauses.append(step.seconds)
                step = steps.send(None)
                continue
            answer = next(script)
            step = steps.throw(answer) if isinstance(answer, VersoError) else steps.send(answer)
    except StopIteration as end:
        return end.value, pauses


def test_a_retryable_error_is_tried_again_until_it_succeeds() -> None:
    reply, pauses = play(CALL, Retries(), [Unavailable("gone"), FULL, DONE])
    assert reply is DONE
    assert len(pauses) == 2


def test_the_wait_is_at_least_what_the_server_asked_for() -> None:
    _, pauses = play(CALL, Retries(), [FULL, FULL, DONE])
    assert all(pause >= 2.0 for pause in pauses)


def test_an_error_that_no_retry_helps_is_raised_at_once() -> None:
    with pytest.raises(CollectionUnknown, match="no such"):
        play(CALL, Retries(), [UNKNOWN])


def test_a_call_that_must_not_be_repeated_is_not() -> None:
    with pytest.raises(Unavailable):
        play(replace(CALL, repeatable=False), Retries(), [Unavailable("gone")])


def test_when_patience_is_over_the_last_error_is_raised() -> None:
    with pytest.raises(QueueFull) as caught:
        play(CALL, Retries(patience_s=1.0), [FULL])
    assert caught.value.retry_after_s == 2.0


def test_waits_grow_and_stay_below_their_bound() -> None:
    retries = Retries(longest_pause_s=4.0)
    longest = [max(retries.pause_s(n, asked_s=None) for _ in range(200)) for n in range(8)]
    assert longest[0] <= 0.25
    assert longest[2] > longest[0]
    assert max(longest) <= 4.0
