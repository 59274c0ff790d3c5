"""Answers as tables, for people at a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from verso_client.cli.evaluation import Gain, Report
from verso_client.operations.documents import IngestReport
from verso_client.operations.lines import LinesReport
from verso_core.jobs import CollectionKind
from verso_core.jobs.cluster import Clustered
from verso_core.jobs.collections import CollectionInfo
from verso_core.jobs.documents import DocumentInfo, Facets
from verso_core.jobs.fitting import Fitted
from verso_core.jobs.job import Job, JobEvent, LedgerView
from verso_core.jobs.migrate import MigrationState
from verso_core.jobs.moves import MoveView
from verso_core.jobs.reconstruct import Guess, StoredText
from verso_core.jobs.scrub import ScrubState
from verso_core.jobs.search import Found, Hit
from verso_core.jobs.statistics import Kept, LineStatistics, Statistics

_EXCERPT = 160
_FAILURES_SHOWN = 20
_SHARE_FROM_BYTES = 1 << 20


def ingested(console: Console, report: IngestReport, *, seconds: float) -> None:
    """Show how many documents an ingest stored, and which failed."""
    codecs = ", ".join(f"{name} {count:,}" for name, count in sorted(report.codecs.items()))
    console.print(
        f"{_counted(report.documents, 'document')} in {_counted(report.chunks, 'chunk')}: "
        f"{report.bytes_text:,} bytes of text, {report.bytes_patches:,} bytes of patches "
        f"({codecs or 'no chunks'}), {seconds:.1f} s",
        highlight=False,
    )
    for item in report.failed[:_FAILURES_SHOWN]:
        assert item.error is not None
        line = f"failed: {item.id or '-'}: {item.error.code}: {item.error.detail}"
        line = line.encode("utf-8", "backslashreplace").decode()  # of a name that is not UTF-8
        console.print(line, style="red", markup=False, highlight=False)
    if len(report.failed) > _FAILURES_SHOWN:
        console.print(f"... {len(report.failed):,} documents failed", style="red")


def deleted(console: Console, documents: int) -> None:
    """Show how many documents were deleted."""
    console.print(f"{_counted(documents, 'document')} deleted", highlight=False)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def hits(console: Console, found: Found, *, took_ms: float) -> None:
    """Show what a search found."""
    table = Table("score", "record", "text")
    for hit in found.hits:
        table.add_row(f"{hit.score:.3f}", escape(hit.id), _text_of(hit))
    console.print(table)
    _ending(console, found, took_ms)


def _ending(console: Console, found: Found, took_ms: float) -> None:
    console.print(f"{_counted(len(found.hits), 'hit')} in {took_ms:.0f} ms", highlight=False)
    if found.missing_partitions:
        names = ", ".join(found.missing_partitions)
        line = f"left out, as their ledgers no longer have them: {names}"
        console.print(line, style="red", markup=False, highlight=False)


def _text_of(hit: Hit) -> Text:
    """Return a hit's text, or why it has none."""
    if hit.error is not None:
        return Text(f"{hit.error.code}: {hit.error.detail}", style="red")
    return Text("") if hit.text is None and hit.text_base64 is None else excerpt(hit.data)


def statements(console: Console, found: Found, *, took_ms: float) -> None:
    """Show the statements and records that a search found, statements with their newest lines."""
    for hit in found.hits:
        if hit.count is None:
            about = f"record {hit.id}  {_moment(hit.time)}"
        else:
            times = f"{_moment(hit.first_seen)} to {_moment(hit.last_seen)}"
            named = f"statement {hit.statement_id}: " if hit.statement_id else ""
            about = f"{named}{_counted(hit.count, 'line')}, {times}"
        head = f"{hit.score:.3f}  {about}".rstrip()
        console.print(head, style="bold", markup=False, highlight=False)
        for text in [excerpt(line.data) for line in hit.lines] or [_text_of(hit)]:
            console.print(Text("  ") + text)
    _ending(console, found, took_ms)


def lines_ingested(console: Console, found: Sequence[LinesReport], *, seconds: float) -> None:
    """Show what an ingest of lines stored."""
    lines, text = sum(one.lines for one in found), sum(one.bytes_text for one in found)
    stored = sum(one.bytes_stored for one in found)
    console.print(
        f"{_counted(lines, 'line')}, {text:,} bytes of text, {stored:,} bytes of segments, "
        f"{lines / max(seconds, 1e-9):,.0f} lines/s",
        highlight=False,
    )


def texts(console: Console, found: Sequence[StoredText]) -> None:
    """Show texts that were read back."""
    table = Table("id", "bytes", "text")
    for one in found:
        if one.error is not None:
            shown = Text(f"{one.error.code}: {one.error.detail}", style="red")
            table.add_row(escape(one.id), "", shown)
        else:
            table.add_row(escape(one.id), f"{len(one.data):,}", excerpt(one.data))
    console.print(table)


def guesses(console: Console, found: Sequence[Guess]) -> None:
    """Show guesses, each with the cosine of its own vector: how good it is."""
    table = Table("cosine", "log p / token", "guess (not exact)")
    for one in found:
        if one.error is not None:
            table.add_row("", "", Text(f"{one.error.code}: {one.error.detail}", style="red"))
        else:
            log_p = f"{one.log_probability:.3f}"
            cosine = "" if one.cosine is None else f"{one.cosine:.2f}"
            table.add_row(cosine, log_p, excerpt(one.data))
    console.print(table)


def statistics(console: Console, found: Statistics) -> None:
    """Show what a collection holds."""
    table = Table(f"collection {found.name}", "")
    table.columns[1].justify = "right"
    for name in (
        "documents", "chunks", "verified", "points",
        "bytes_text", "bytes_vectors", "bytes_terms", "bytes_patches", "bytes_entries",
    ):  # fmt: skip
        table.add_row(name.replace("_", " of "), f"{getattr(found, name):,}")
    if found.kept is not None:
        _kept(table, found.kept, lines=found.lines, text=found.bytes_text)
    for codec, share in sorted(found.codecs.items()):
        table.add_row(f"codec {codec}", f"{share.records:,} records, {share.bytes:,} bytes")
    for one in found.generations:
        about = f"{one.stage}, {one.records:,} records, {one.bytes:,} bytes"
        table.add_row(f"tables {one.id.rpartition('.')[2]}", about)
    for name, value in _settings(found).items():
        table.add_row(name.replace("_", " "), Text(value))
    console.print(table)


def _settings(found: Statistics | CollectionInfo) -> dict[str, str]:
    """Return what is set of a collection, as words."""
    indexes = ", ".join(f"{key}={kind}" for key, kind in found.indexes.items())
    days = None if found.retention_days is None else f"{found.retention_days:g}"
    created = None if found.created is None else f"{found.created:%Y-%m-%d %H:%M:%S}Z"
    as_they_are = ("kind", "owner", "precision", "text_policy", "search", "codec_policy")
    values: dict[str, object] = {name: getattr(found, name) for name in as_they_are}
    values |= {"auto_fit": found.auto_fit, "space": found.space, "dim": found.dim}
    values |= {"indexes": indexes or None, "days_kept": days, "created": created}
    missing = ", ".join(found.missing_partitions)
    values |= {"partitions": found.partitions, "missing_partitions": missing or None}
    return {name: str(value) for name, value in values.items() if value is not None}


def _kept(table: Table, kept: Kept, *, lines: LineStatistics | None, text: int) -> None:
    """Add all bytes that a collection takes, and their share of its texts."""
    for name, where in (
        ("bytes_entries", "in memory"), ("bytes_texts", "in memory"),
        ("bytes_fitted", "in memory"), ("bytes_vectors", "on disk"), ("bytes_index", "on disk"),
        ("bytes_words", "on disk"), ("bytes_points", "on disk"), ("bytes_cold", "in cold storage"),
    ):  # fmt: skip
        size = getattr(kept, name)
        if size is not None and (size or name != "bytes_cold"):  # which few have
            table.add_row(f"kept {where}: {name.removeprefix('bytes_')}", f"{size:,} bytes")
    if lines is not None:
        _lines(table, lines)
    whole = kept.bytes_memory + (kept.bytes_disk or 0) + kept.bytes_cold
    # Of less text the folders of an empty collection are most of it.
    says = kept.bytes_disk is not None and text >= _SHARE_FROM_BYTES
    share = f", {whole / text:.0%} of the text" if says else ""
    table.add_row("kept in all", f"{whole:,} bytes{share}")
    table.add_row("codec tables, kept once", f"{kept.bytes_tables:,} bytes")


def _lines(table: Table, lines: LineStatistics) -> None:
    """Add what is kept of lines, and what of it where."""
    table.add_row("lines in blocks", f"{lines.lines:,}, of {lines.statements:,} statements")
    table.add_row("lines as records", f"{lines.records:,}")
    parts = {
        "segments": lines.bytes_segments,
        "shapes": lines.bytes_shapes,
        "vectors of statements": lines.bytes_statements,
        "fitted tables": lines.bytes_tables,
    }
    for name, size in parts.items():
        table.add_row(f"kept in memory: {name}", f"{size:,} bytes")
    rest = max(0, lines.bytes_memory - sum(parts.values()))
    table.add_row("kept in memory: lists of lines, overhead", f"{rest:,} bytes")


def fitted(console: Console, found: Fitted) -> None:
    """Show what a fit measured, and whether its tables are kept."""
    if not found.held_out:
        console.print("there are too few texts to fit to", highlight=False)
        return
    console.print(
        f"{found.chunks:,} chunks read: of {found.held_out:,} held out each took "
        f"{found.before:.1f} bytes, with tables {found.after:.1f}; tables of {found.bytes:,} bytes",
        highlight=False,
    )
    kept = f"kept: {found.generation}" if found.generation else "not kept: they do not pay yet"
    console.print(kept, highlight=False)


def collections(console: Console, found: Sequence[CollectionInfo]) -> None:
    """Show collections; what few have is shown if one has it."""
    rows = [_settings(one) for one in found]
    columns = ["precision", "text_policy", "search", "codec_policy", "dim", "created"]
    if any(one.kind is not CollectionKind.DOCUMENTS for one in found):
        columns.insert(0, "kind")
    of_few = ("indexes", "days_kept", "partitions", "missing_partitions", "owner")
    columns += [name for name in of_few if any(name in row for row in rows)]
    table = Table("name", *(name.replace("_", " ") for name in columns))
    for one, row in zip(found, rows, strict=True):
        table.add_row(one.name, *(Text(row.get(name, "")) for name in columns))
    console.print(table)


def documents(console: Console, found: Sequence[DocumentInfo], *, more: bool) -> None:
    """Show documents with their metadata."""
    table = Table("id", "time", "bytes", "metadata")
    for one in found:
        metadata = Text(json.dumps(one.metadata, ensure_ascii=False) if one.metadata else "")
        table.add_row(escape(one.id), _moment(one.time), f"{one.bytes:,}", metadata)
    console.print(table)
    if more:
        console.print(f"the first {len(found):,}; --limit shows more", highlight=False)


def facets(console: Console, found: Facets) -> None:
    """Show the most frequent values of fields."""
    for facet in found.facets:
        table = Table(escape(facet.field), "documents")
        for row in facet.values:
            table.add_row(Text(json.dumps(row.value, ensure_ascii=False)), f"{row.documents:,}")
        left = facet.distinct - len(facet.values)
        if left:
            table.add_row(f"{left:,} more values", "")
        if facet.missing:
            table.add_row("no value", f"{facet.missing:,}")
        console.print(table)


def retrieval(console: Console, found: Report) -> None:
    """Show the retrieval quality of each mode of search."""
    table = Table(
        *(f"{found.name}, {found.split}", "texts", "nDCG@10, 95 %", "gained, 95 %"),
        *("recall@10", "recall@100", "ms a search"),
    )
    for row in found.rows:
        table.add_row(
            row.mode if row.reranked_by is None else f"{row.mode}, then {row.reranked_by}",
            *(row.texts, f"{100 * row.ndcg:.2f} {_between(row.ndcg_95, '.1f')}", _gained(row.gain)),
            *(f"{100 * row.recall_10:.1f}", f"{100 * row.recall_100:.1f}", f"{row.ms:.0f}"),
        )
    console.print(table)
    same = "the same" if found.same_before_and_after else "NOT the same"
    console.print(
        f"{found.documents:,} documents in {found.chunks:,} chunks, {found.questions:,} questions, "
        f"vectors {found.precision}; verified texts at the first pass {found.verified_before:,}, "
        f"at the second {found.verified_after:,}; the hits were {same}",
        highlight=False,
    )
    console.print(
        f"bytes a chunk: text {found.bytes_text / found.chunks:.1f}, "
        f"vector {found.bytes_vectors / found.chunks:.1f}, "
        f"patch {found.bytes_patches / found.chunks:.1f}, "
        f"words {found.bytes_terms / found.chunks:.1f}; {found.seconds:.0f} s altogether",
        highlight=False,
    )


def _gained(gain: Gain | None) -> str:
    if gain is None:
        return ""
    return f"{100 * gain.mean:+.1f} {_between((gain.low, gain.high), '+.1f')}"


def _between(bounds: tuple[float, float], form: str) -> str:
    low, high = (format(100 * bound, form) for bound in bounds)
    return f"[{low}, {high}]"


def clusters(console: Console, found: Clustered) -> None:
    """Show groups of records."""
    table = Table("records", "new", "first seen", "last seen", "template or text")
    for group in found.groups:
        shown = Text(group.template or "")
        if group.template is None and group.representatives:
            one = group.representatives[0]
            read = one.text is not None or one.text_base64 is not None
            shown = excerpt(one.data) if read else Text(one.id)
        new = "new" if group.new else ""
        times = [_moment(group.first_seen), _moment(group.last_seen)]
        table.add_row(f"{group.size:,}", new, *times, shown)
    console.print(table)
    console.print(
        f"{found.clusters:,} groups of {found.records:,} records, {found.alone:,} in no group",
        highlight=False,
    )


def _moment(time_s: float | None) -> str:
    return "" if time_s is None else f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S}Z"


def migration(console: Console, found: MigrationState) -> None:
    """Show a migration, and what it could not read."""
    state = f"{found.stage}, {found.progress:.1%} of pass {found.pass_number}"
    table = Table(f"migration of {found.collection}", state if found.running else found.stage)
    table.add_row("to codec", found.codec + (", in place" if found.in_place else ""))
    table.add_row("documents moved", f"{found.copied:,}")
    table.add_row("old side", "removed" if found.old_removed else "kept")
    console.print(table)
    for one in found.unread:
        console.print(f"cannot be read: {one}", style="red", markup=False)


def move(console: Console, found: MoveView) -> None:
    """Show a move to another ledger, and why it waits."""
    state = found.stage.value if found.ended else f"{found.stage}, {found.part:.1%} copied"
    table = Table(f"move of {found.collection}", state)
    table.add_row("from, to", f"{found.source}, {found.target}")
    table.add_row("copied", f"{found.bytes_copied / 2**20:,.1f} MiB")
    table.add_row("writes waited", f"{found.paused_s:,.1f} s")
    if found.reason is not None:
        table.add_row("waits", found.reason.value.replace("_", " "))
    console.print(table)


def scrub(console: Console, found: ScrubState) -> None:
    """Show the newest pass of the scrub, and what it found damaged."""
    state = "ended" if found.number else "none yet"
    if found.running:
        state = f"{found.progress:.1%} done"
    state += ", another requested" if found.asked else ""
    table = Table(f"scrub pass {found.number}", state)
    table.columns[1].justify = "right"
    for name in ("documents", "sound", "repaired", "damaged", "bytes", "unread"):
        table.add_row(name, f"{getattr(found, name):,}")
    console.print(table)
    if found.recent is not None:
        console.print(
            f"recent documents are read first: {found.recent.buckets_done:,} of "
            f"{found.recent.buckets:,} buckets, {found.recent.documents:,} documents",
            highlight=False,
        )
    for one in found.damaged_documents:
        console.print(f"damaged: {one.collection} {one.id}", style="red", markup=False)


def ledgers(console: Console, found: Sequence[LedgerView]) -> None:
    """Show the ledgers of a platform."""
    table = Table("ledger", "collections", "memory", "of", "")
    for one in found:
        state = "draining" if one.draining else ""
        if one.leaving:
            state += f" {one.leaving:,} leave"
        sizes = [
            "-" if size is None else f"{size / 2**20:,.0f} MiB"
            for size in (one.bytes_memory, one.bytes_memory_limit)
        ]
        table.add_row(
            one.name, f"{one.collections:,}", *sizes, state if one.answers else "does not answer"
        )
    console.print(table)


def job(console: Console, found: Job) -> None:
    """Show a job's state."""
    console.print(
        f"job {found.id}: {found.kind} {found.status}, {found.ok:,} of {found.items:,} items done, "
        f"{found.failed:,} failed",
        highlight=False,
    )
    if found.error is not None:
        line = f"{found.error.code}: {found.error.detail}"
        console.print(line, style="red", markup=False, highlight=False)


def event(console: Console, found: JobEvent) -> None:
    """Show one event of a job on one line."""
    fields = "  ".join(f"{name} {value}" for name, value in found.data.items())
    console.print(f"{found.name}: {fields}", markup=False, highlight=False)


def excerpt(data: bytes) -> Text:
    """Return the beginning of a text on one line, with spaces for what does not print."""
    text = data.decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else " " for c in text[:_EXCERPT])
    return Text(shown + (" ..." if len(text) > _EXCERPT else ""), overflow="fold")
