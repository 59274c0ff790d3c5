"""What routes of several protocols do: know the names of models, embed texts, rank documents.

These protocols have no 202. A caller waits as long as a caller may, or as ``Prefer`` says, and is
then told that the platform is overloaded, which may be tried again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import Request

from verso_core.errors import ModelUnknown, RequestInvalid
from verso_core.heads import Task
from verso_core.jobs import SLICE_COST, EmbedItem, EmbedParams, Item, Kind, Queue, SliceSpec, cut
from verso_core.jobs.heads.models import TextSpan
from verso_core.jobs.heads.score import PairScore, ScoreItem, ScoreParams
from verso_core.jobs.ingest import Embedded
from verso_core.registry import TASKS
from verso_core.texts import text_bytes
from verso_gateway import responses
from verso_gateway.context import DEFAULT, context_of
from verso_gateway.job_service import Ended
from verso_gateway.routes.embed import cut_texts
from verso_gateway.settings import MODEL

RERANKER = "relevance"
"""The task whose head reranks where a request names none."""
_HEAD = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Encoder:
    """An encoder that is served, as a request names it.

    Attributes:
        name: of the model in the protocol.
        space: of its vectors.
        dim: of its vectors.
        int8_scale: of its vectors as codes.
        artifact: what jobs name it by; None is the stable one.
    """

    name: str
    space: str
    dim: int
    int8_scale: float
    artifact: str | None = None


class Vectors(NamedTuple):
    """The vectors of a request's texts, and their job."""

    ended: Ended
    items: list[Embedded]

    @property
    def tokens(self) -> int:
        """Return how many tokens were read."""
        return sum(item.tokens for item in self.items)


@dataclass(frozen=True, slots=True)
class Rank:
    """A document's score, and the part that counted."""

    index: int
    score: float
    evidence: TextSpan | None


class Ranks(NamedTuple):
    """A request's documents, best first, and their job."""

    ended: Ended
    ranks: list[Rank]
    tokens: int


async def encoders(request: Request) -> dict[str, Encoder]:
    """Return the encoders by the names that they are served under, ``verso`` first.

    Raises:
        NotReady: no worker has made the default collection yet.
    """
    context = context_of(request)
    default = await context.collections.get(DEFAULT)
    aliases = context.settings.aliases.targets
    names = [MODEL, *(name for name, target in aliases.items() if target == MODEL), default.space]
    others: list[Encoder] = []
    for state in await context.workers.states():
        artifact = state.get("artifact", {})
        stable = artifact.get("stable")
        if stable is not None and stable["space"] == default.space:
            names.append(stable["name"])
        for one in artifact.get("additional", ()):
            scale = one.get("int8_scale", default.int8_scale)  # an older worker does not say
            others += [
                Encoder(name, one["space"], one["dim"], scale, artifact=one["name"])
                for name in (one["name"], one["space"])
            ]
    own = default.space, default.dim, default.int8_scale
    found = {name: Encoder(name, *own) for name in names}
    return {one.name: one for one in others} | found


async def encoder_of(request: Request, name: str | None) -> Encoder:
    """Return the encoder that a request asks for, the stable one where it names none.

    Raises:
        ModelUnknown: no encoder is served under this name.
    """
    known = await encoders(request)
    if (name or MODEL) not in known:
        raise _unknown(request, name or MODEL, list(known))
    return known[name or MODEL]


async def reranker_of(request: Request, name: str | None) -> str:
    """Return the head that a model's name means where documents are ranked.

    Raises:
        ModelUnknown: there is no such model, and no head of this name that scores.
    """
    context = context_of(request)
    aliases = context.settings.aliases.targets
    wanted = MODEL if name is None else aliases.get(name, name)
    names = [name for name, one in (await encoders(request)).items() if one.artifact is None]
    if wanted in names:
        return RERANKER
    heads: list[str] = []
    for newest in (False, True):  # a head may have been published just now
        states = await context.workers.states(newest=newest)
        heads = sorted({head["name"] for state in states for head in _scoring(state)})
        # where no worker lives, one that comes will say
        if wanted in heads or wanted in TASKS or (not states and _HEAD.fullmatch(wanted)):
            return wanted
    raise _unknown(request, name or wanted, [*names, *heads, *aliases])


def _scoring(state: dict[str, Any]) -> list[dict[str, Any]]:
    heads = state.get("heads", ())
    return [one for one in heads if (one["stable"] or {}).get("task") == Task.SCORE]


def _unknown(request: Request, name: str, known: Sequence[str]) -> ModelUnknown:
    request.state.pointer = "/model"
    names = ", ".join(dict.fromkeys(known))
    return ModelUnknown(f"expected a model that is served ({names}), got {name[:64]!a}")


async def embedded(request: Request, texts: Sequence[str], *, by: Encoder) -> Vectors:
    """Embed the texts of a request by an encoder and wait for their vectors.

    Raises:
        NotReady: they did not come in time.
        VersoError: the job was not accepted, or a text failed.
    """
    items: list[Item] = [EmbedItem(text_bytes(text)) for text in texts]
    slices, queue = cut_texts(Kind.EMBED, EmbedParams(artifact=by.artifact), items)
    ended = await finished(request, Kind.EMBED, slices, queue=queue)
    return Vectors(ended, responses.all_items(ended))


async def ranked(request: Request, query: str, texts: Sequence[str], *, head: str) -> Ranks:
    """Rank the documents of a request, best first, and wait for their scores.

    Raises:
        NotReady: they did not come in time.
        VersoError: the job was not accepted, or failed.
    """
    items = [ScoreItem.of(text_bytes(query), text_bytes(text)) for text in texts]
    params = ScoreParams(head=head, sentences=True)
    slices = list(cut(Kind.SCORE, params, items, max_cost=SLICE_COST))
    ended = await finished(request, Kind.SCORE, slices, queue=Queue.INTERACTIVE)
    scores: list[PairScore] = responses.all_items(ended)
    ranks = [Rank(index, item.score, item.evidence) for index, item in enumerate(scores)]
    ranks.sort(key=lambda rank: (-rank.score, rank.index))
    return Ranks(ended, ranks, sum(item.tokens or 0 for item in scores))


async def finished(request: Request, kind: Kind, slices: list[SliceSpec], *, queue: Queue) -> Ended:
    """Submit a job and wait for its end as long as a caller may.

    Raises:
        NotReady: it did not end in time.
        VersoError: the job was not accepted, or failed.
    """
    job = responses.job_of(request, kind, slices, queue=queue, collection=None)
    job = await responses.repeatable(request, job)
    longest_s = context_of(request).settings.wait_max_s
    return await responses.finish(request, job, wait_default_s=longest_s)


def in_unit(score: float) -> float:
    """Return a score within [0, 1]: those of a cosine may be below 0."""
    return max(0.0, min(1.0, score))


def check_dimensions(request: Request, dimensions: int, *, by: Encoder, key: str) -> None:
    """Check that the dimensions that a request asks for are the encoder's.

    Args:
        request: the request.
        dimensions: what it asks for.
        by: the encoder.
        key: of the body.

    Raises:
        RequestInvalid: they are not.
    """
    if dimensions != by.dim:
        request.state.pointer = f"/{key}"
        raise RequestInvalid(f"expected {key} {by.dim}, got {dimensions}")


def check_whole(request: Request, vectors: Vectors, *, key: str) -> None:
    """Check that no text of a request was cut.

    Raises:
        RequestInvalid: one is longer than the encoder's window.
    """
    for index, item in enumerate(vectors.items):
        if item.truncated:
            request.state.pointer = f"/{key}/{index}"
            raise RequestInvalid(
                f"{key}/{index}: expected a text of <= {item.tokens} tokens, got more: only its "
                "end can be cut off"
            )
