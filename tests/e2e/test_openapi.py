"""Every operation against its description, as schemathesis derives requests from it.

The OpenAI-compatible routes are left out: their description is OpenAI's, which the real client
checks (test_sdks.py). So are the event streams, which have no end
while a job has none, or lines come; their tests are in test_jobs.py and feed/test_tail.py there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.e2e.conftest import Platform, publish_heads
from tests.support.api_document import DOCUMENT

if TYPE_CHECKING:
    from tests.support.described import Operations


STREAMS = {"followJob", "followJobs", "tailLogs"}


def _names() -> Iterator[str]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            others = re.match(r"/v1/(embeddings|models)", path)
            if not others and operation["operationId"] not in STREAMS:
                yield f"{method.upper()} {path}"


@pytest.fixture(scope="module")
def operations() -> Operations:
    """The operations as schemathesis reads them."""
    from tests.support.described import Operations

    return Operations(DOCUMENT)


@pytest.fixture(scope="module")
def url(new_platform: Callable[..., Platform]) -> str:
    """Address of a platform of the test's own, as requests delete, migrate and promote."""
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    publish_heads(platform)
    return platform.url


@pytest.mark.parametrize("name", [*_names()])
def test_an_operation_is_what_its_description_says(
    name: str, operations: Operations, url: str
) -> None:
    operations.test(name)(url=url)
