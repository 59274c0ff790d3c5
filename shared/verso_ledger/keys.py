"""The name of every key of the ledger, in one place; the Lua scripts get this same list.

All keys live in one database. ``{…}`` below says what follows the prefix.

    job         {job}                hash: kind, queue, status, counters, times
    slice       {job}.{n}            hash: status, phase, fence, crashes, errors, lease, outcome
    payload     {job}.{n}            string: the slice's frame; for an ingest it holds the raw texts
                                     and stays until they are verified
    result      {job}                hash: slice number -> result frame, or where it is
    events      {job}                stream of state and progress
    idem        {tenant}:{key}       hash: the job that this idempotency key made, hash of its body
    claim       {token}              string: slices and fences leased by one call of claim
    ready       {queue}              sorted set: slices that wait for their time, by that time
    lane        {queue}:{tenant}     sorted set: one tenant's due slices, by urgency and age
    turns       {queue}              sorted set: tenants with due slices, by when their turn starts
    served      {queue}              hash: tenant -> when its last turn finished, in virtual time
    leased      {queue}              sorted set: slices that run, by the end of their lease
    dead        -                    sorted set: slices that crashed or failed too often, by time
    deadlines   -                    sorted set: unfinished jobs that have a deadline, by it
    pending     -                    sorted set: unfinished writes and deletes, by sequence number
    drop        -                    sorted set: verified payloads, by the time they may be deleted
    load        -                    hash: unfinished slices and bytes of each queue and of each
                                     tenant in it; drain rate and virtual time of each queue
    jobs        {tenant}             sorted set: a tenant's jobs, by sequence number
    reads       {tenant}             sorted set: its newest reads whose callers wait, likewise
    tenants     -                    set: tenants that ever had a job
    walk        -                    hash: tenant -> how far its list of jobs is tidied
    webhooks    {tenant}             hash: id -> a webhook of this tenant as JSON
    hooks       -                    sorted set: webhook messages to send, by due time
    session     {hash}               string: digest of the API key of a browser's session, by the
                                     hash of its token, until it expires
    hookitem    {token}              hash: one message: webhook, job, state, attempts
    hookdead    -                    sorted set: messages that were tried too often, by time
    totals      -                    hash: counters since the ledger was made
    health      -                    hash: last real embed, reap, heartbeats of workers and trainers
    serving     -                    hash: worker -> what it serves, JSON
    seq         -                    number of the newest slice or collection; never goes back
    news        -                    channel: ids and states of jobs with new events; with the end
                                     of one that a caller waits for, the job and its result;
                                     "lines:{uid} queued" when lines were accepted
    wake        {queue}              channel: new work came, for workers that listen
    collections -                    hash: name -> collection as JSON
    uids        -                    hash: name -> uid: the sequence number of its birth
    tombs       {uid}                sorted set: deleted documents, by the delete's sequence number
    docs        {uid}:{bucket}       hash: document id -> entry, or the head of a long entry
    long        {uid}:{document}     string: an entry too long for a bucket
    text        {uid}:{document}     string: the text itself, where the collection keeps both
    counts      {uid}                hash: what the collection holds, see documents.py and count.lua
    generations {uid}                hash: fitted tables that the collection has -> how many records
                                     that name them are verified
    tables      {generation}         string: tables fitted to a collection, packed
    feedback    {head}:{version}     hash: hash of a text -> time, confidence and whether the
                                     head's label was right, packed; the newest ones
    trial       {trial}              hash: sums of what workers counted of a canary, see trials.py;
                                     it expires
    log         {uid}                hash: what a log collection holds of lines: see logs.py
    streams     {uid}                hash: labels as JSON -> numbers of stream and next line
    shapes      {uid}                list: packed shapes of lines, in the order of their numbers
    fitted      {uid}                hash: generation -> fitted tables of the codec of lines
    statements  {uid}                list: hashes and vectors of templates, in the order they came
    segment     {uid}:{stream}:{n}   string: lines of a stream from number n on
    segments    {uid}                sorted set: every segment's place, lines and times, by when it
                                     was written
    gone        {uid}:{stream}:{n}   string: bitmap of the deleted lines of a segment
    identities  {uid}:{period}       set: hashes of the identities of log records that were accepted
                                     in a period; it expires a period later
    spans       {uid}                set: kinds and periods of the two kinds of key that expire
    arrivals    {uid}                stream: the newest slices of lines that were accepted, by the
                                     number of their first line among all that ever were
    positions   {uid}:{period}       hash: source of lines -> how far it was accepted, of those
                                     that moved in a period; it expires a period later
    gc          -                    sorted set: entries whose points may go, by due time
    gcitem      {token}              hash: collection, document, entry; of no document: all of an
                                     own name's vectors
    dropped     -                    list: deleted collections whose keys are not swept yet
    razed       {name}               string: uid of the last collection of this name that was
                                     deleted, or the last attempt to make one; number of the slice
                                     that deleted; for a week
    scrub       -                    hash: the pass of the scrub: cursor, job, counters
    ages        -                    hash: day since 1970 -> sequence number when its first pass of
                                     the scrub began: how old documents are
    damaged     -                    list: documents that this pass found damaged, up to a bound
    staged      -                    sorted set: "{job} {slices} {bytes}" of jobs whose payloads
                                     are stored before they are accepted, by the reservation's end
    orphans     -                    sorted set: {uid}:{point} that no entry named when it was
                                     looked at, by the newest sequence number then
    epoch       -                    hash: the epoch this ledger is in, and the one before
    halted      -                    hash: what this ledger had reached once and does not hold any
                                     more; while it is there nothing is written
    aliases     -                    hash: name that users know -> own name, after a migration
    hidden      -                    set: own names that stand for themselves no more, or not yet
    sealed      -                    set: uids of collections that take no commit any more
    migrations  -                    hash: name -> migration as JSON
    rewritten   -                    string: there while the file was rewritten lately
    named       -                    string: name of this ledger, of a platform that has several
    placements  -                    hash, of the home ledger: collection -> name of the ledger that
                                     new collections of this name are made on
    draining    -                    set, of the home ledger: ledgers that get no new collection
    partitioned -                    hash, of the home ledger: collection of several partitions ->
                                     which there are, whose it is, what is done with it, as JSON
    moves       -                    hash: collection -> its newest move to another ledger as JSON
    shut        -                    hash: n:collection, o:own name -> until when nothing is written
                                     as it moves to another ledger, or which one it has moved to
    tracked     -                    set: uids of collections whose changes are noted
    marks       {uid}                sorted set: buckets and segments that have changed since they
                                     were copied -> number of the newest change
    fresh       {uid}                sorted set: identities and sources of positions that are new
                                     since they were copied -> number of the newest change
    receiving   -                    hash: own name of a collection that is copied here -> uid of
                                     its keys, number of the caller that may write them, and
                                     number of its newest call
    came        -                    hash: collection that has moved here -> where it was, as JSON
    arriving    -                    hash: own name of such a collection, while the ledger that it
                                     came from may read it -> its uid
    frozen      -                    string: who keeps points from being removed, for a while
    replicated  -                    channel without a subscriber: a step publishes on it, and waits
                                     until the replicas have what was published

Times in keys are milliseconds of the server's clock.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "verso:"

_ONE_FOR_EACH: Final = (
    "job", "slice", "payload", "result", "events", "idem", "claim", "ready", "leased", "tombs",
    "docs", "long", "text", "gcitem", "wake", "lane", "turns", "served", "jobs",
    "counts", "generations", "tables", "webhooks", "hookitem", "razed", "session", "reads",
    "log", "streams", "shapes", "fitted", "statements", "segment", "segments", "gone",
    "identities", "arrivals", "positions", "feedback", "trial", "marks", "spans", "fresh",
)  # fmt: skip
_SINGLE: Final = (
    "dead", "deadlines", "pending", "drop", "load", "totals", "health", "seq", "news",
    "collections", "uids", "gc", "dropped", "scrub", "damaged", "serving", "tenants", "walk",
    "hooks", "hookdead", "epoch", "frozen", "halted", "aliases", "hidden", "sealed", "migrations",
    "orphans", "rewritten", "staged", "replicated", "shut", "tracked", "moves", "receiving", "came",
    "arriving", "ages",
)  # fmt: skip
_NO_STEPS: Final = ("named", "placements", "draining", "partitioned")
"""Single keys that no script uses: each name in its table costs every step."""

NAMES: Final[dict[str, str]] = {name: f"{PREFIX}{name}:" for name in _ONE_FOR_EACH} | {
    name: f"{PREFIX}{name}" for name in (*_SINGLE, *_NO_STEPS)
}
"""Prefix (with its colon) or full name of each kind of key."""


def key(kind: str, *parts: str | int) -> str:
    """Return the name of one key: ``key("docs", uid, bucket)``."""
    return NAMES[kind] + ":".join(str(part) for part in parts)


def lua_table() -> str:
    """Return the names as the Lua table ``K``, which stands before every script."""
    rows = ",".join(f'{name}="{NAMES[name]}"' for name in (*_ONE_FOR_EACH, *_SINGLE))
    return "local K={" + rows + "}\n"
