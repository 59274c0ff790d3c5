"""The ledger sums what workers count of a canary, and the sums expire."""

from __future__ import annotations

import redis

from verso_ledger import Ledger
from verso_ledger.keys import key
from verso_ledger.trials import KEPT_S


def test_sums_of_several_workers_are_added_up(ledger: Ledger, valkey_url: str) -> None:
    assert ledger.trials.counts("t") == {}
    ledger.trials.add("t", {"agreed": 3, "canary:-7": 1})
    ledger.trials.add("t", {"agreed": 4, "differed": 1})
    ledger.trials.add("other", {"agreed": 1})
    assert ledger.trials.counts("t") == {"agreed": 7, "differed": 1, "canary:-7": 1}
    with redis.Redis.from_url(valkey_url) as raw:
        assert 0 < raw.ttl(key("trial", "t")) <= KEPT_S
