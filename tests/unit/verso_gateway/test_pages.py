"""Pages of results: the same JSON whether slices lie in the ledger, in files, or in both."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.wire import Result

from verso_core import jobs
from verso_core.errors import ResultLost
from verso_core.jobs import Kind, Queue, Status
from verso_core.result_files import ResultFiles
from verso_gateway import views
from verso_gateway.job_service import whole
from verso_gateway.views import Page
from verso_ledger import JobRecord

JOB = "0" * 32
RECORD = JobRecord(
    JOB,
    Kind.RECONSTRUCT,
    Queue.BULK,
    "t",
    Status.SUCCEEDED,
    *(1.0, None, None, None),
    *(46, 46, 0, 13, 13, 1),
    None,
)


def result(n: int) -> Result:
    items = [{"ok": True, "id": f"{n}/{row}", "blob": row} for row in range(n)]
    return Result(items, [f"text {row}".encode() for row in range(n)], {"infer": 1.0})


RESULTS = [result(n) for n in (0, 3, 1, 40, 0, 2)]


def held(files: ResultFiles) -> list[bytes]:
    return [files.keep(JOB, n, one.pack()) for n, one in enumerate(RESULTS, 7)]


def text_of(page: Page) -> str:
    async def joined() -> bytes:
        return b"".join([part async for part in page.json({"id": JOB, "next_cursor": None})])

    return asyncio.run(joined()).decode()


@pytest.mark.parametrize("inline_bytes", [0, 200, 1 << 20])
def test_a_page_is_the_same_wherever_its_slices_lie(tmp_path: Path, inline_bytes: int) -> None:
    files = ResultFiles(tmp_path, inline_bytes=inline_bytes)
    page = Page(files, RECORD, first=7, held=held(files))
    asyncio.run(page.check())
    unpacked = [jobs.Result.unpack(Kind.RECONSTRUCT, one.pack()) for one in RESULTS]
    rendered = views.rendered(unpacked)
    expected = {"id": JOB, "next_cursor": None, "results": rendered}
    assert json.loads(text_of(page)) == expected


def test_a_page_of_which_one_slice_is_gone_is_refused_before_it_begins(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path, inline_bytes=200)
    page = Page(files, RECORD, first=7, held=held(files))
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    path.unlink()
    with pytest.raises(ResultLost):
        asyncio.run(page.check())


def test_results_for_one_answer_are_read_whole_and_in_order(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path, inline_bytes=0)
    rows = [files.keep(JOB, n, one.pack()) for n, one in enumerate(RESULTS)]
    found = asyncio.run(whole(files, RECORD, [*rows, None]))
    assert found == [*(one.pack() for one in RESULTS), None]


def test_slices_of_a_group_lie_with_the_jobs_of_its_ledgers(tmp_path: Path) -> None:
    """The slices of both jobs are one list; their files are named by job and number there."""
    files = ResultFiles(tmp_path, inline_bytes=0)
    parts = {f"{JOB}_home_b": 4, f"{JOB}_home_b-b": 2}
    record = replace(RECORD, job_id=next(iter(parts)), parts=tuple(parts.items()))
    places = [(job, n) for job, slices in parts.items() for n in range(slices)]
    assert [record.place(n) for n in range(6)] == places
    rows = [files.keep(*place, one.pack()) for place, one in zip(places, RESULTS, strict=True)]
    found = asyncio.run(whole(files, record, rows))
    assert found == [one.pack() for one in RESULTS]
    page = Page(files, record, first=3, held=rows[3:])
    asyncio.run(page.check())
    assert [row["id"] for row in json.loads(text_of(page))["results"]][-1] == "2/1"
