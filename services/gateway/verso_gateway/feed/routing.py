"""Which collection records go to, by rules ``pattern=collection``; the first that fits counts.

A source is the name that a sender gives: an index, a job, a service. What makes such a name new
every day or at every rollover is left out before it is compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pydantic import TypeAdapter

from verso_core.jobs.models import Name

# a date, with or without separators; the number of a rollover
_DATED = re.compile(r"(?:[-_.]\d{4}[-._]\d\d(?:[-._]\d\d)?|[-_.]\d{8}|[-_.]\d{6})+$")
_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True)
class Routing:
    """Rules in their order: a pattern (``*``, ``?``, ``[abc]``) and the name of a collection."""

    rules: Sequence[tuple[str, str]]

    @classmethod
    def parse(cls, text: str) -> Routing:
        """Read rules: ``nginx-*=web, *=logs``.

        Raises:
            ValueError: a rule is written otherwise, or names no collection.
        """
        rules = []
        for rule in filter(None, map(str.strip, text.split(","))):
            pattern, equals, name = (part.strip() for part in rule.rpartition("="))
            if not equals or not pattern:
                raise ValueError(f"expected pattern=collection, got {rule!r}")
            rules.append((pattern, _NAME.validate_python(name)))
        return cls(tuple(rules))

    def collection(self, source: str) -> str | None:
        """Return the name of the collection for a source; None where no rule fits."""
        name = undated(source)
        return next((to for pattern, to in self.rules if fnmatchcase(name, pattern)), None)


def undated(source: str) -> str:
    """Return a source without a date and the number of a rollover at its end.

    >>> undated("filebeat-8.15.0-2026.11.23-000001")
    'filebeat-8.15.0'
    """
    return _DATED.sub("", source) or source
