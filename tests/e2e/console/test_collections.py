"""Stories of collections: make one, drop files into it, see what it takes, delete it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import FilePayload, Page, Route, expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform
    from tests.e2e.console.conftest import Look

DROP = """
([target, files]) => {
  const held = new DataTransfer();
  for (const [name, text] of files) held.items.add(new File([text], name));
  const about = { dataTransfer: held, bubbles: true, cancelable: true };
  for (const type of ["dragover", "drop"]) target.dispatchEvent(new DragEvent(type, about));
}
"""
"""Drops files as a hand would: a browser that is driven has no hand."""


HANDBOOK = Path(__file__).parents[2] / "data" / "files" / "handbook.pdf"


def drop(page: Page, **files: str) -> None:
    """Drop files on the page's field for them; an underscore before the ending is a dot."""
    named = [[re.sub(r"_(\w+)$", r".\1", name), text] for name, text in files.items()]
    page.evaluate(DROP, [page.locator(".drop").element_handle(), named])


def test_files_are_dropped_and_every_text_is_verified(look: Look, stage: Platform) -> None:
    name = f"dropped-{look.theme}-{look.width}"
    page = look.open("/console/collections")
    expect(page.get_by_role("link", name="notes")).to_be_visible()
    look.accessible()
    look.shot("collections")
    page.get_by_role("button", name="New collection").click()
    page.get_by_label("Name", exact=True).fill("Not so")
    expect(page.get_by_text("Small letters, digits")).to_be_visible()
    page.get_by_label("Name", exact=True).fill(name)
    look.accessible()
    look.shot("new-collection")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    expect(page.get_by_text("Nothing is stored yet")).to_be_visible()
    rows = "\n".join(
        f'{{"id": "row-{n}", "text": "The pump of hall {n} runs at {n} bar."}}' for n in range(20)
    )
    drop(page, note_txt="A note of its own, äöü \U0001f469\u200d\U0001f680", rows_jsonl=rows)
    files = page.get_by_role("list", name="Files")
    expect(files.get_by_text("20 documents stored")).to_be_visible()
    expect(files.get_by_text("1 document stored")).to_be_visible()
    expect(page.locator(".stat", has_text="Verified").locator(".stat-value")).to_have_text("all")
    expect(page.locator(".stat", has_text="Documents").locator(".stat-value")).to_have_text("21")
    expect(page.get_by_text("Verso saves").first).to_be_visible()
    expect(page.locator(".view.takes-more").last).to_contain_text("times as much")
    look.accessible()
    look.shot("collection")
    with stage.client() as client:
        assert client.get("note.txt", collection=name).data.decode().endswith("\U0001f680")
        assert client.stats(name).verified == 21


def test_the_text_of_a_file_is_stored(look: Look, stage: Platform) -> None:
    page = look.open("/console/collections/notes")
    look.allow("422")
    name = f"{look.theme}-{look.width}.pdf"
    given: list[FilePayload] = [
        {"name": name, "mimeType": "application/pdf", "buffer": HANDBOOK.read_bytes()},
        {"name": "picture.docx", "mimeType": "image/png", "buffer": b"\x89PNG\r\n"},
    ]
    page.get_by_label("Files to ingest").set_input_files(given)
    files = page.get_by_role("list", name="Files")
    expect(files.locator("li", has_text=name)).to_contain_text("1 document stored")
    expect(files.locator("li", has_text="picture.docx").locator(".hint.bad")).to_be_visible()
    with stage.client() as client:
        stored = client.get(name, collection="notes")
        client.delete(name, collection="notes")
    assert stored.metadata["pages"] == 3
    assert b"Each pump needs new oil after 600 hours" in stored.data


def test_a_line_longer_than_a_part_is_sent_whole(look: Look) -> None:
    page = look.open("/console/collections")
    sizes = page.evaluate("""async () => {
      const main = document.querySelector("script[type=module][src]").src;
      const { partsOf } = await import(new URL("pages/collections/files.js", main).href);
      const file = new File(["a\\n", "x".repeat(5 << 20), "\\nb"], "app.log");
      const sizes = [];
      for await (const part of partsOf(file, { name: "l", kind: "logs" })) sizes.push(part.size);
      return sizes;
    }""")
    assert sizes == [2, (5 << 20) + 2]


def test_what_cannot_be_stored_says_why(look: Look) -> None:
    page = look.open("/console/collections/notes")
    drop(page, broken_json="{", refused_jsonl='{"id": "a", "txt": "no text"}')
    look.allow("422")
    files = page.get_by_role("list", name="Files")
    expect(files.locator("li", has_text="broken.json").locator(".hint.bad")).to_be_visible()
    expect(files.locator("li", has_text="refused.jsonl").locator(".hint.bad")).to_be_visible()
    look.accessible()


def test_how_long_documents_are_kept_is_changed(look: Look, stage: Platform) -> None:
    page = look.open("/console/collections/notes")
    field = page.get_by_label("Days kept")
    field.fill("30")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The settings are changed.")).to_be_visible()
    with stage.client() as client:
        [notes] = [one for one in client.collections() if one.name == "notes"]
        assert notes.retention_days == 30
    field.fill("")
    # The toast of the first change may still be there, so the second one's answer is waited for.
    with page.expect_response(lambda answer: answer.request.method == "PATCH"):
        page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    with stage.client() as client:
        [notes] = [one for one in client.collections() if one.name == "notes"]
        assert notes.retention_days is None


def test_a_collection_is_deleted_only_once_its_name_is_typed(look: Look, stage: Platform) -> None:
    with stage.client() as client:
        client.create_collection("gone")
    page = look.open("/console/collections/gone")
    page.get_by_role("button", name="Delete …").click()
    confirm = page.get_by_role("button", name="Delete it")
    expect(confirm).to_be_disabled()
    page.get_by_label("Type gone to go on").fill("gone")
    look.accessible()
    confirm.click()
    expect(page.get_by_role("heading", name="Collections", level=1)).to_be_visible()
    expect(page.get_by_role("link", name="gone")).to_have_count(0)


def test_a_delete_whose_answer_is_lost_is_sent_again_and_succeeds(
    look: Look, stage: Platform
) -> None:
    with stage.client() as client:
        client.create_collection("lost")
    page = look.open("/console/collections/lost")
    look.allow("ERR_FAILED")
    keys: list[str] = []

    def send(route: Route) -> None:
        if route.request.method == "DELETE":
            keys.append(route.request.headers["idempotency-key"])
            answer = route.fetch()
            assert answer.ok
            if len(keys) == 1:
                route.abort()
                return
        route.continue_()

    page.route("**/v1/collections/lost", send)
    page.get_by_role("button", name="Delete …").click()
    page.get_by_label("Type lost to go on").fill("lost")
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_role("heading", name="Collections", level=1)).to_be_visible()
    expect(page.get_by_role("link", name="lost")).to_have_count(0)
    assert keys == [keys[0]] * 2


def test_a_collection_that_is_not_there_is_said_to_be(look: Look) -> None:
    page = look.open("/console/collections/nowhere")
    look.allow("404")
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    look.accessible()
