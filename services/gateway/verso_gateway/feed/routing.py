"""Which collection records go to, by rules ``pattern=collection``; the first that fits counts.

With ``pattern=collection:record`` the text of a record is all of it, not only its message.

A source is the name that a sender gives: an index, a job, a service. What makes such a name new
every day or at every rollover is left out before it is compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from pydantic import TypeAdapter

from verso_core.jobs.models import Name

# a date, with or without separators; the number of a rollover
_DATED = re.compile(r"(?:[-_.]\d{4}[-._]\d\d(?:[-._]\d\d)?|[-_.]\d{8}|[-_.]\d{6})+$")
_NAME: TypeAdapter[str] = TypeAdapter(Name)


_WHOLE = ":record"


class Rule(NamedTuple):
    """A rule.

    Attributes:
        pattern: of sources: ``*``, ``?``, ``[abc]``.
        collection: that their records go to.
        whole: whether the text of a record is all of it.
    """

    pattern: str
    collection: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Routing:
    """Rules in their order."""

    rules: Sequence[Rule]

    @classmethod
    def parse(cls, text: str) -> Routing:
        """Read rules: ``nginx-*=web, audit=audit:record, *=logs``.

        Raises:
            ValueError: a rule is written otherwise, or names no collection.
        """
        rules = []
        for rule in filter(None, map(str.strip, text.split(","))):
            pattern, equals, name = (part.strip() for part in rule.rpartition("="))
            if not equals or not pattern:
                raise ValueError(f"expected pattern=collection, got {rule!r}")
            known = _NAME.validate_python(name.removesuffix(_WHOLE))
            rules.append(Rule(pattern, known, whole=name.endswith(_WHOLE)))
        return cls(tuple(rules))

    def collection(self, source: str) -> str | None:
        """Return the name of the collection for a source; None where no rule fits."""
        rule = self._rule(source)
        return None if rule is None else rule.collection

    def keeps_whole(self, source: str) -> bool:
        """Whether the text of a source's records is all of them."""
        rule = self._rule(source)
        return rule is not None and rule.whole

    def _rule(self, source: str) -> Rule | None:
        name = undated(source)
        return next((rule for rule in self.rules if fnmatchcase(name, rule.pattern)), None)


def undated(source: str) -> str:
    """Return a source without a date and the number of a rollover at its end.

    >>> undated("filebeat-8.15.0-2026.11.23-000001")
    'filebeat-8.15.0'
    """
    return _DATED.sub("", source) or source
