"""The header of a line: what stands before its message, and says nothing of its statement.

Lines come masked, with `<time>` for a timestamp and `<*>` for another value. A header is times,
numbers, levels and bracketed fields at the head of a line. It goes on behind other fields (the name
of a node, a file or a facility) up to the last time, or level after a time, that follows them,
if none of them looks like a word of a sentence. Then a logger, bracketed fields, a host and
a program may end it. A header of klog or glog is a level, times, a thread, and a file up to `]`.
"""

import re

_LEVELS = (
    rb"(?:TRACE|DEBUG|INFO|INFORMATION|NOTICE|WARN|WARNING|ERROR|ERR|SEVERE|CRITICAL|CRIT|FATAL"
    rb"|ALERT|EMERG|FAILURE|PANIC|[VDIWEF])"
)
_START = re.compile(
    rb"""(?:[\[<(]?\s*(?:<time>|<\*>)(?:[Zz]|[+-]<\*>(?::<\*>)?)?[\])>,|:]*[\s|]+  # time or number
    |[\[<(]?%s[\]>):,|]*(?:\s+|\|)                     # level
    |-\s+                                              # no value
    )*"""
    % _LEVELS,
    re.VERBOSE | re.IGNORECASE,
)
_FIELD = re.compile(rb"(\S+)(?:\s+|$)")
_LEVEL = re.compile(rb"[\[<(]?%s[\]>):,]?" % _LEVELS)
_NO_WORD = re.compile(rb"-|[A-Z]{2,}|\S*[<.\-_/:@]\S*")
_KLOG = re.compile(rb"[IWEFD]<\*>\s+<\*>\s+<\*>\s+\S{1,128}\]\s+")
_MOST_FIELDS = 9
_LOGGER = re.compile(rb"[\w<*>$-]+(?:\.[\w<*>$-]+)+\s+(?=\[)")
_BRACKETED = re.compile(rb"\[[^\]]*\]\s*:?\s*")
_PROGRAM = re.compile(
    rb"""(?:[\w.<*>-]++\s++)?                           # host
    (?=[0-9_.$/<*>()-]*+[A-Za-z])[\w.$/<*>()-]++(?:\[[^\]\s]*\])?(?:\s\([\w.<*>-]+\))?:\s+
    |[\w.<*>$-]++(?:\s+\*<\*>)?\s+-\s+                 # program, dash""",
    re.VERBOSE,
)
"""Nothing is given back: a word of kilobytes would be looked at from each of its letters."""


def message(text: bytes) -> bytes:
    """Return a masked line without its header; a line that is nothing else is returned whole."""
    if klog := _KLOG.match(text):
        return text[klog.end() :].strip() or text
    at = _start(text, _last_mark(text, _start(text, 0)))
    if at:
        if logger := _LOGGER.match(text, at):
            at = logger.end()
        while bracketed := _BRACKETED.match(text, at):
            at = _start(text, bracketed.end())
        if program := _PROGRAM.match(text, at):
            at = program.end()
    return text[at:].strip() or text


def _start(text: bytes, at: int) -> int:
    """Return where times, numbers and levels end that stand next to one another."""
    found = _START.match(text, at)
    return at if found is None else found.end()


def _last_mark(text: bytes, at: int) -> int:
    """Return the end of the last time or level behind fields that are no words of a sentence."""
    timed = b"<time>" in text[:at]
    found = at
    for _ in range(_MOST_FIELDS):
        field = _FIELD.match(text, at)
        if field is None:
            break
        at = field.end()
        if b"<time>" in field[1]:
            timed, found = True, at
        elif timed and _LEVEL.fullmatch(field[1]):
            found = at
        elif not _NO_WORD.fullmatch(field[1]):
            break
    return found
