"""Where the header of a masked line ends."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs.headers import message

NODE = b"R<*>-M<*>-NC-I:J<*>-U<*>"


@pytest.mark.parametrize(
    ("header", "rest"),
    [
        (b"<time> combo sshd(pam_unix)[<*>]: ", b"session opened for user root by (uid=<*>)"),
        (b"<time>  <*>  <*> D WindowManager: ", b"printing opening app"),
        (b"<time> INFO [main] org.apache.hadoop.Task: ", b"Created task <*>"),
        (b"[<time>] [error] ", b"mod_jk child <*> in error state <*>"),
        (
            b"- <*> <*> %b <time> %b RAS KERNEL INFO " % (NODE, NODE),
            b"cache parity error corrected",
        ),
        (b"APPREAD <*> <*> %b <time> %b RAS APP FATAL " % (NODE, NODE), b"failed to read prefix"),
        (
            b"nova.log.<*>.<time> <time> <*> INFO nova.compute.manager [req-<*> - - - - -] ",
            b"VM started",
        ),
        (b"nova.log.<*>.<time> <time> <*> INFO nova.virt.driver [-] ", b"Instance destroyed"),
        (b"I<*> <*>    <*> controller.go<*>] ", b'"Reconciling" object="a/b"'),
        (b"E<*> <*> <*> <*>] ", b"watch of pods ended with <*> items [all]"),
        (b"", b"I<*> <*> said <*>] to <*>"),
        (b"[<time>] chrome.exe *<*> - ", b"<*> close, <*> bytes sent"),
        (b"", b"Got exception ERROR while reading <*>"),
        (b"", b"Started at <time> by root"),
        (b"", b"reverse mapping checking getaddrinfo for a.b.c failed"),
    ],
)
def test_a_header_ends_before_what_the_statement_says(header: bytes, rest: bytes) -> None:
    assert message(header + rest) == rest


def test_a_line_that_is_nothing_but_header_is_its_own_message() -> None:
    assert message(b"<time> INFO ") == b"<time> INFO "


@pytest.mark.parametrize(
    "rest", [b"a" * 60_000, b"a-" * 30_000, b"a." * 30_000, b"host " + b"a(" * 30_000]
)
def test_a_word_of_kilobytes_costs_no_square_of_its_length(rest: bytes) -> None:
    started = time.process_time()
    assert message(b"<time> " + rest) == rest
    assert time.process_time() - started < 2.0


_PARTS = st.sampled_from(
    [b"<time>", b"<*>", b"INFO", b"E", b"-", b"[x]", b"a.b", b"host", b"app:", b"said", b" ", b"|"]
)


@given(st.lists(_PARTS, max_size=16).map(b" ".join))
def test_a_message_is_the_end_of_its_line(text: bytes) -> None:
    found = message(text)
    assert text.strip().endswith(found.strip())
    assert bool(found) == bool(text)
