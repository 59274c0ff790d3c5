"""The Prefer header (RFC 7240): how long a caller would wait for its answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WAIT = re.compile(r"^\d{1,9}$")


@dataclass(frozen=True, slots=True)
class Preference:
    """What a caller prefers; None and False where it did not say."""

    wait_s: float | None = None
    respond_async: bool = False

    def wait(self, default_s: float, *, max_s: float) -> float:
        """Return the seconds to wait: ``respond-async`` alone means not at all."""
        if self.wait_s is not None:
            return min(self.wait_s, max_s)
        return 0.0 if self.respond_async else default_s

    def applied(self, wait_s: float) -> str | None:
        """Return the Preference-Applied header, None where nothing was preferred."""
        parts = ["respond-async"] if self.respond_async else []
        if self.wait_s is not None:
            parts.append(f"wait={wait_s:.0f}")
        return ", ".join(parts) or None


def parse(values: Iterable[str]) -> Preference:
    """Read Prefer headers; what is unknown or malformed is ignored, as the RFC asks (section 2)."""
    wait_s, respond_async = None, False
    for part in ",".join(values).split(","):
        name, _, value = part.partition(";")[0].partition("=")
        value = value.strip().strip('"')
        match name.strip().lower():
            case "respond-async":
                respond_async = True
            case "wait" if wait_s is None and _WAIT.fullmatch(value):
                wait_s = float(value)  # of a preference given twice the first counts
    return Preference(wait_s=wait_s, respond_async=respond_async)
