"""``/tei`` as clients of Hugging Face's Text Embeddings Inference speak to it.

``POST /tei`` does what the keys of its body ask for, since ``huggingface_hub`` sends every task to
the address that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import fsum
from operator import mul
from typing import Any

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import BatchEmpty, BodyTooLarge, NotReady, RequestInvalid
from verso_core.jobs import SLICE_COST, Kind, Queue, cut
from verso_core.jobs.heads.classify import Classified, ClassifyItem, ClassifyParams
from verso_core.jobs.heads.score import PairScore, ScoreItem, ScoreParams
from verso_core.texts import text_bytes
from verso_gateway import openapi, responses, views
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.job_service import Ended
from verso_gateway.protocols import TEI_PATH
from verso_gateway.protocols.tei import (
    LABEL,
    MAX_BATCH,
    TeiAnyRequest,
    TeiAnyResponse,
    TeiEmbedRequest,
    TeiInfo,
    TeiPredictions,
    TeiPredictRequest,
    TeiRanks,
    TeiRerankRequest,
    TeiSimilarities,
    TeiSimilarityRequest,
    TeiVectors,
)
from verso_gateway.routes.embed import cut_texts
from verso_gateway.routes.protocols import served
from verso_gateway.settings import MODEL

router = guarded("tei")

_DISTRIBUTION = "verso-retrieval"
_MOST_LABELS = 1000


@router.post(
    TEI_PATH,
    name="tei",
    operation_id="teiAny",
    responses=openapi.responses(TeiAnyResponse),
    openapi_extra=openapi.body(TeiAnyRequest),
)
async def any_task(request: Request) -> Response:
    """Embed, rank or compare texts, as the keys of the body ask for."""
    value = await reading.read_object(request)
    if "texts" in value:
        return await _ranked(request, value)
    if isinstance(value.get("inputs"), dict):
        return await _compared(request, value)
    return await _embedded(request, value)


@router.post(
    f"{TEI_PATH}/embed",
    name="tei_embed",
    operation_id="teiEmbed",
    responses=openapi.responses(TeiVectors),
    openapi_extra=openapi.body(TeiEmbedRequest),
)
async def embed(request: Request) -> Response:
    """Turn texts into vectors."""
    return await _embedded(request, await reading.read_object(request))


@router.post(
    f"{TEI_PATH}/predict",
    name="tei_predict",
    operation_id="teiPredict",
    responses=openapi.responses(TeiPredictions),
    openapi_extra=openapi.body(TeiPredictRequest),
)
async def predict(request: Request) -> Response:
    """Classify texts by the head of `VERSO_TEI_HEAD`, or score pairs of texts by `pairs`."""
    inputs = (await reading.read(request, TeiPredictRequest)).inputs
    several = isinstance(inputs, list) and isinstance(inputs[0], list)
    rows: list[list[str]] = inputs if several else [_listed(inputs)]  # type: ignore[assignment]
    _check_batch(len(rows))
    if len({len(row) for row in rows}) > 1:
        request.state.pointer = "/inputs"
        raise RequestInvalid("inputs: expected texts or pairs of texts, got both")
    predict = _classified if len(rows[0]) == 1 else _scored
    ended, found = await predict(request, rows)
    return _response(found if several else found[0], ended)


@router.post(
    f"{TEI_PATH}/rerank",
    name="tei_rerank",
    operation_id="teiRerank",
    responses=openapi.responses(TeiRanks),
    openapi_extra=openapi.body(TeiRerankRequest),
)
async def rerank(request: Request) -> Response:
    """Order texts by how well they fit a query, best first."""
    return await _ranked(request, await reading.read_object(request))


@router.post(
    f"{TEI_PATH}/similarity",
    name="tei_similarity",
    operation_id="teiSimilarity",
    responses=openapi.responses(TeiSimilarities),
    openapi_extra=openapi.body(TeiSimilarityRequest),
)
async def similarity(request: Request) -> Response:
    """Compare a sentence with others: the cosines of their vectors."""
    return await _compared(request, await reading.read_object(request))


@router.get(
    f"{TEI_PATH}/info",
    name="tei_info",
    operation_id="teiInfo",
    responses=openapi.responses(TeiInfo),
)
async def info(request: Request) -> Response:
    """Describe the artifact that serves, and the limits of requests."""
    context = context_of(request)
    for state in await context.workers.states():
        encoder, stable = state.get("encoder"), state.get("artifact", {}).get("stable")
        if encoder is not None and stable is not None:
            most = context.settings.connections_limit
            return responses.json_response(_info(encoder, stable, connections=most))
    raise NotReady("no worker has said yet what it serves")


def _info(
    encoder: Mapping[str, Any], stable: Mapping[str, Any], *, connections: int
) -> dict[str, Any]:
    return {
        "model_id": stable["name"],
        "model_sha": f"{stable['space']}-{stable['codec']}",
        "model_dtype": encoder["precision"],
        "served_model_name": MODEL,
        "model_type": {"embedding": {"pooling": encoder["pooling"]}},
        "max_concurrent_requests": connections,
        "max_input_length": encoder["max_tokens"],
        "max_batch_tokens": encoder["batch_tokens"],
        "max_batch_requests": encoder["batch_rows"],
        "max_client_batch_size": MAX_BATCH,
        "auto_truncate": True,
        "tokenization_workers": encoder["threads"],
        "version": _version(),
        "sha": None,
        "docker_label": None,
    }


def _version() -> str:
    """Return the version of Verso; that of a tree that is not installed is not known."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


async def _embedded(request: Request, value: dict[str, Any]) -> Response:
    given = value.get("inputs")
    if isinstance(given, list):
        _check_batch(len(given))
        if given and isinstance(given[0], int | list):
            request.state.pointer = "/inputs"
            raise RequestInvalid("inputs: expected texts, got token ids")
    checked = reading.validate(request, value, model=TeiEmbedRequest)
    encoder = await served.encoder_of(request, None)
    if checked.dimensions is not None:
        served.check_dimensions(request, checked.dimensions, by=encoder, key="dimensions")
    vectors = await served.embedded(request, checked.texts, by=encoder)
    if checked.refuses_cuts:
        served.check_whole(request, vectors, key="inputs")
    return _response([item.public()["embedding"] for item in vectors.items], vectors.ended)


async def _ranked(request: Request, value: dict[str, Any]) -> Response:
    given = value.get("texts")
    if isinstance(given, list):
        _check_batch(len(given))
    checked = reading.validate(request, value, model=TeiRerankRequest)
    head = await served.reranker_of(request, None)
    found = await served.ranked(request, checked.query, checked.texts, head=head)
    ranks: list[dict[str, Any]] = [
        {
            "index": rank.index,
            "score": rank.score if checked.raw_scores else served.in_unit(rank.score),
        }
        for rank in found.ranks
    ]
    if checked.return_text:
        for rank in ranks:
            rank["text"] = checked.texts[rank["index"]]
    return _response(ranks, found.ended)


async def _compared(request: Request, value: dict[str, Any]) -> Response:
    checked = reading.validate(request, value, model=TeiSimilarityRequest)
    texts = [checked.inputs.source_sentence, *checked.inputs.sentences]
    _check_batch(len(texts) - 1)
    encoder = await served.encoder_of(request, None)
    vectors = await served.embedded(request, texts, by=encoder)
    if checked.parameters is not None and checked.parameters.refuses_cuts:
        served.check_whole(request, vectors, key="inputs")
    found = [item.public()["embedding"] for item in vectors.items]
    size = sum(map(len, found))
    return _response(await reading.off_loop(size, partial(_cosines, found)), vectors.ended)


def _cosines(vectors: Sequence[Sequence[float]]) -> list[float]:
    """Return the cosines of the first vector, of unit length as all are, and each other one."""
    first, *others = vectors
    return [fsum(map(mul, first, other)) for other in others]


async def _classified(
    request: Request, rows: list[list[str]]
) -> tuple[Ended, list[list[dict[str, Any]]]]:
    head = context_of(request).settings.tei_head
    items = [ClassifyItem(text=text_bytes(text)) for [text] in rows]
    params = ClassifyParams(heads=(head,), top_k=_MOST_LABELS)
    slices, queue = cut_texts(Kind.CLASSIFY, params, items)
    ended = await served.finished(request, Kind.CLASSIFY, slices, queue=queue)
    found: list[Classified] = responses.all_items(ended)
    return ended, [
        [{"score": one.score, "label": one.label} for one in item.heads[0].scores] for item in found
    ]


async def _scored(
    request: Request, rows: list[list[str]]
) -> tuple[Ended, list[list[dict[str, Any]]]]:
    items = [ScoreItem.of(text_bytes(first), text_bytes(second)) for first, second in rows]
    params = ScoreParams(head=served.RERANKER)
    slices = list(cut(Kind.SCORE, params, items, max_cost=SLICE_COST))
    ended = await served.finished(request, Kind.SCORE, slices, queue=Queue.INTERACTIVE)
    found: list[PairScore] = responses.all_items(ended)
    return ended, [[{"score": served.in_unit(item.score), "label": LABEL}] for item in found]


def _check_batch(count: int) -> None:
    if not count:
        raise BatchEmpty("expected one text or more, got none")
    if count > MAX_BATCH:
        raise BodyTooLarge(f"expected a batch of <= {MAX_BATCH} texts, got {count}")


def _listed(inputs: str | list[Any]) -> list[Any]:
    return [inputs] if isinstance(inputs, str) else inputs


def _response(content: object, ended: Ended) -> Response:
    fields = {"Server-Timing": views.server_timing(ended.results)}
    return responses.json_response(content, headers=fields)
