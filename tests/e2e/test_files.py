"""Files become documents: their text is found, answered from with its page, and read back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2
import pytest
from tests.e2e.conftest import Platform, command_line

from verso_client import AsyncClient, Client, File
from verso_core.errors import FileUnreadable

FILES = Path(__file__).parents[1] / "data" / "files"
HANDBOOK = (FILES / "handbook.pdf").read_bytes()


def test_a_folder_is_ingested_and_a_second_time_changes_nothing(
    platform: Platform, verso: Client, collection: str, tmp_path: Path
) -> None:
    for path in FILES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "broken.pdf").write_bytes(HANDBOOK[:9000])
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (tmp_path / ".hidden").write_bytes(b"not for others")
    asked = ("ingest", str(tmp_path), "-c", collection, "--json")
    done = command_line(platform.url, *asked)
    report = json.loads(done.stdout)
    [failed] = report["failed"]
    assert (done.returncode, failed["error"]["code"]) == (4, "file_unreadable")
    assert failed["id"].startswith(f"{tmp_path}/broken.pdf@")
    assert report["documents"] == len(list(FILES.iterdir()))
    again = json.loads(command_line(platform.url, *asked).stdout)
    page = verso.documents(collection)
    assert len(page.documents) == again["documents"] == report["documents"]
    [letter] = [one.id for one in page.documents if one.id.startswith(f"{tmp_path}/letter.docx")]
    stored = verso.get(letter, collection=collection)
    assert stored.metadata["title"] == "Offer for a new seal"
    assert stored.metadata["source"] == f"{tmp_path}/letter.docx"
    assert b"we offer the seal of pump P2 for 184 euros." in stored.data
    [notes] = [one.id for one in page.documents if one.id.startswith(f"{tmp_path}/notes.md")]
    assert verso.get(notes, collection=collection).data == (FILES / "notes.md").read_bytes()


def test_an_answer_names_the_page(headed: Platform, collection: str) -> None:
    with headed.client() as verso:
        file = File(HANDBOOK, name="handbook.pdf", id="handbook", metadata={"title": "mine"})
        assert verso.ingest([file], collection=collection).failed == ()
        stored = verso.get("handbook", collection=collection)
        assert stored.metadata == {
            "source": "handbook.pdf",
            "title": "mine",
            "media_type": "application/pdf",
            "pages": 3,
        }
        pages = stored.data.split(b"\f")
        found = verso.answer("Who answers for the station?", collection=collection, top_k=20)
        for part in found.answers:
            assert part.page is not None
            assert part.data in pages[part.page - 1]
            start = part.document_start_byte
            assert part.page == 1 + stored.data[:start].count(b"\f")
        [job] = verso.submit(
            [File(HANDBOOK, name="handbook.pdf", id="p", pages=True)], collection=collection
        )
        assert (verso.wait(job.id).ok, job.items) == (3, 3)
        assert verso.get("p/2", collection=collection).metadata["page"] == 2
        found = verso.answer("Who?", collection=collection, top_k=20)
        alone = [part for part in found.answers if str(part.document).startswith("p/")]
        assert alone
        assert all(str(part.document) == f"p/{part.page}" for part in alone)


async def test_the_asynchronous_client_sends_files_as_well(
    platform: Platform, collection: str
) -> None:
    async with AsyncClient(platform.url) as verso:
        sent = [File((FILES / name).read_bytes(), name=name) for name in ("page.html", "order.eml")]
        report = await verso.ingest([*sent, File(b"\0\1", name="x.bin")], collection=collection)
        assert report.documents == 2
        assert [one.error.code for one in report.failed if one.error] == ["file_unsupported"]
        found = (await verso.query(collection)).documents
        assert {(one.metadata["source"], one.time) for one in found} == {
            ("page.html", None),
            ("order.eml", 1_777_965_164.0),
        }
        with pytest.raises(FileUnreadable):
            await verso.submit([File(b"", name="x.pdf")], collection=collection)


@pytest.mark.parametrize(
    ("query", "body", "media_type", "status", "code"),
    [
        ("", b"%PDF-1.7 and no more", "application/pdf", 422, "file_unreadable"),
        ("", b"GIF89a", "application/octet-stream", 415, "file_unsupported"),
        ("&metadata=[1]", HANDBOOK, "application/pdf", 422, "metadata_invalid"),
        ("&metadata={", HANDBOOK, "application/pdf", 422, "metadata_invalid"),
        ("&id=a%23b%231", HANDBOOK, "application/pdf", 422, "documents_refused"),
        ("&time=once", HANDBOOK, "application/pdf", 422, "documents_refused"),
        ("&source=a", HANDBOOK, "application/pdf", 422, "request_invalid"),
    ],
)
def test_what_cannot_be_taken_has_a_code(
    http: httpx2.Client, query: str, body: bytes, media_type: str, status: int, code: str
) -> None:
    path = f"/v1/ingest?collection=default{query}"
    answer = http.post(path, content=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_files_are_counted(http: httpx2.Client) -> None:
    http.post("/v1/ingest", content=b"", headers={"Content-Type": "application/pdf"})
    page = http.get("/metrics").text
    assert re.search(r'verso_files_total{status="file_unreadable"} [1-9]', page)
    assert "verso_file_seconds_bucket" in page
