"""The heads that an engine has loaded: sessions, golden samples, lanes.

1. A head is loaded from a verified folder. If it reads tokens, its session is given the encoder's
   weights (``base_weights``), which all such heads share.
2. Its golden samples must give their outputs. Only then can it be called, by name and version.
3. Calls are batched like any other work of the engine, in lanes of the head's own: calls of more
   than ``SHORT_TOKENS`` in one whose threads let all others go first. It has sessions of its own,
   as the cores of a run are threads of its session, and opens them when such calls come: one on
   all cores, and one that leaves a core to what others call meanwhile.

Several versions of a head may be loaded at once; they stay until the engine ends.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from verso_core import heads
from verso_core.errors import (
    EngineUnavailable,
    HeadInvalid,
    HeadUnknown,
    VectorInvalid,
)
from verso_core.heads import Head, LoadedHead, Reads, Task
from verso_core.manifest import Artifact
from verso_worker.engine.base_weights import BaseWeights
from verso_worker.engine.lanes import Lane
from verso_worker.engine.sessions import Device, Load, expect_names, open_session
from verso_worker.engine.windows import Row, Windows, best_spans, feeds
from verso_worker.records.outputs import Classified, Document, Found

TOKEN_BUDGET = 1024
"""Tokens of a batch, padding included."""

VECTOR_ROWS = 256
"""Vectors of a batch: a head on vectors is a product or two."""

SHORT_TOKENS = 4 * TOKEN_BUDGET
"""Tokens of a call that others may wait for; beyond it a call takes longer than a person waits for
an embed or a search, a quarter of a second on two cores."""

_ALONE_S = 1.0
"""A long call takes all cores if nobody has called anything else for so long."""

_PADDING = 64
_ROWS = 64
_DOCUMENTS = 64
"""Most documents of a batch."""

Outputs = dict[str, NDArray[np.float32]]
_INPUTS: dict[Reads, tuple[str, ...]] = {
    Reads.VECTOR: ("vector",),
    Reads.VECTOR_PAIR: ("u", "v"),
    Reads.TOKENS: ("input_ids", "attention_mask"),
    Reads.TOKEN_PAIR: ("input_ids", "attention_mask", "token_type_ids"),
    Reads.DOCUMENT: ("vectors", "mask", "terms", "weights"),
}
_FLOATS = {"vector", "u", "v", "vectors", "mask", "weights"}
_OUTPUTS: dict[Task, tuple[str, ...]] = {
    Task.CLASSIFY: ("logits",),
    Task.ANSWER: ("start", "end"),
    Task.SCORE: ("score",),
}


class _Loaded:
    """One head: its sessions and its lanes.

    Args:
        head: the head.
        opened: makes a session of its graph, on so many cores.
        cores: most cores of a run.
        by_length: long calls have a lane of their own.
        load: counts its runs.
    """

    def __init__(
        self,
        head: Head,
        opened: Callable[[int], ort.InferenceSession],
        *,
        cores: int,
        by_length: bool,
        load: Load,
    ) -> None:
        self.head = head
        self._cores = cores
        self._session = opened(cores)
        # opened by the thread that runs them, whose priority their own threads have then
        self._long_session = cache(opened)
        self._load = load
        self._inputs = _INPUTS[head.reads]
        expect_names(self._session, heads.GRAPH, inputs=self._inputs, outputs=_OUTPUTS[head.task])
        self._outputs = [node.name for node in self._session.get_outputs()]
        self._lane: Lane[Any, Outputs]
        self._long_lane: Lane[Any, Outputs] | None = None
        if head.reads is Reads.DOCUMENT:
            self._lane = Lane(
                f"head-{head.name}", self._run_documents, budget=VECTOR_ROWS, rows=_DOCUMENTS
            )
        elif head.reads.tokens:
            lane = partial(Lane, budget=TOKEN_BUDGET, rows=_ROWS, padding=_PADDING)
            self._lane = lane(f"head-{head.name}", self._run_rows)
            if by_length:
                self._long_lane = lane(f"head-{head.name}-long", self._run_long, yields=True)
        else:
            self._lane = Lane(
                f"head-{head.name}", self._run_vectors, budget=VECTOR_ROWS, rows=VECTOR_ROWS
            )

    def run(
        self, works: Sequence[Row] | Sequence[NDArray[np.float32]] | Sequence[Document]
    ) -> list[Outputs]:
        """Run rows, documents, or stacked input vectors of shape (inputs, D).

        The outputs have no batch axis.

        Raises:
            EngineUnavailable: the graph failed on an input.
        """
        costs = [_cost(work) for work in works]
        lane = self._lane
        if self._long_lane is not None and sum(costs) > SHORT_TOKENS:
            lane = self._long_lane
        found = []
        for result in lane.submit(works, costs):
            if isinstance(result, Exception):
                raise EngineUnavailable(f"head {self.head.name} failed on an input") from result
            found.append(result)
        return found

    def close(self) -> None:
        """Finish the waiting inputs and end the lanes."""
        self._lane.close()
        if self._long_lane is not None:
            self._long_lane.close()

    def session_run(self, given: Mapping[str, NDArray[Any]]) -> Outputs:
        """Run the graph on a batch."""
        with self._load.run():  # an encoder beside it then keeps to one core
            return self._run(self._session, given)

    def _run(self, session: ort.InferenceSession, given: Mapping[str, NDArray[Any]]) -> Outputs:
        values = session.run(self._outputs, {name: given[name] for name in self._inputs})
        return dict(zip(self._outputs, values, strict=True))

    def _run_rows(self, rows: Sequence[Row]) -> list[Outputs]:
        return self._cut(rows, self.session_run(feeds(rows)))

    def _run_long(self, rows: Sequence[Row]) -> list[Outputs]:
        alone = self._load.idle_s >= _ALONE_S
        session = self._long_session(self._cores if alone else max(1, self._cores - 1))
        with self._load.run(yields=True):
            return self._cut(rows, self._run(session, feeds(rows)))

    def _cut(self, rows: Sequence[Row], outputs: Outputs) -> list[Outputs]:
        # Logits of tokens are cut to the row's length; other outputs have no token axis.
        per_token = self.head.task is Task.ANSWER
        return [
            {n: v[at, : len(row.ids)] if per_token else v[at] for n, v in outputs.items()}
            for at, row in enumerate(rows)
        ]

    def _run_vectors(self, vectors: Sequence[NDArray[np.float32]]) -> list[Outputs]:
        stacked = np.stack(vectors, axis=1)  # (inputs, rows, D)
        outputs = self.session_run(dict(zip(self._inputs, stacked, strict=True)))
        return [{n: v[at] for n, v in outputs.items()} for at in range(len(vectors))]

    def _run_documents(self, documents: Sequence[Document]) -> list[Outputs]:
        chunks = max(len(one.vectors) for one in documents)
        words = max(1, *(len(one.terms) for one in documents))
        shape = (len(documents), chunks, documents[0].vectors.shape[1])
        given: dict[str, NDArray[Any]] = {
            "vectors": np.zeros(shape, np.float32),
            "mask": np.zeros(shape[:2], np.float32),
            "terms": np.zeros((len(documents), words), np.int64),
            "weights": np.zeros((len(documents), words), np.float32),
        }
        for at, one in enumerate(documents):
            given["vectors"][at, : len(one.vectors)] = one.vectors
            given["mask"][at, : len(one.vectors)] = 1.0
            given["terms"][at, : len(one.terms)] = one.terms
            given["weights"][at, : len(one.terms)] = one.weights
        outputs = self.session_run(given)
        return [{n: v[at] for n, v in outputs.items()} for at in range(len(documents))]


def _cost(work: Row | NDArray[np.float32] | Document) -> int:
    if isinstance(work, Row):
        return len(work.ids)
    return len(work.vectors) if isinstance(work, Document) else 1


class Heads:
    """Loaded heads by name and version; any number of threads may call.

    Args:
        artifact: the artifact whose encoder and space the heads read.
        threads: cores one run of a graph may use.
        device: where graphs run.
        load: counts the runs of heads with those of other graphs on the same cores.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int,
        device: Device = Device.CPU,
        load: Load | None = None,
    ) -> None:
        self._space = artifact.manifest.space
        self._optimisation = artifact.manifest.codec.profile.optimisation
        self._threads = threads
        self._device = device
        self._load = load or Load()
        self._weights = BaseWeights(artifact)
        self._windows = Windows(artifact.data["encoder_tokenizer.json"])
        self._lock = threading.Lock()
        self._loaded: dict[tuple[str, str], _Loaded] = {}

    def load(self, folder: Path) -> Head:
        """Load and check a head, unless it is loaded already.

        Raises:
            HeadInvalid: it is incomplete, altered, of another space, or fails its golden samples.
        """
        loaded = heads.load(folder)
        head = loaded.head
        key = (head.name, head.version)
        with self._lock:
            if key not in self._loaded:
                self._loaded[key] = self._open(loaded)
        return head

    def classify_vectors(
        self, name: str, version: str, *, vectors: NDArray[np.float32]
    ) -> Classified:
        """Run a classifier on vectors. Shape: (n, D)."""
        loaded = self._find(name, version, Task.CLASSIFY, Reads.VECTOR)
        return _classified(loaded.run([row[None] for row in self._checked(vectors)]), loaded.head)

    def classify_documents(
        self, name: str, version: str, *, documents: Sequence[Document]
    ) -> Classified:
        """Run a classifier on the chunks of documents, and on their terms if it reads them."""
        loaded = self._find(name, version, Task.CLASSIFY, Reads.DOCUMENT)
        checked = [replace(one, vectors=self._checked(one.vectors)) for one in documents]
        return _classified(loaded.run(checked), loaded.head)

    def classify_texts(self, name: str, version: str, *, texts: Sequence[bytes]) -> Classified:
        """Run a classifier that reads tokens; a text that is too long is cut at the end."""
        loaded = self._find(name, version, Task.CLASSIFY, Reads.TOKENS)
        rows = self._windows.single(texts, max_tokens=_max_tokens(loaded.head))
        return _classified(loaded.run(rows), loaded.head)

    def score_vectors(
        self, name: str, version: str, *, pairs: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Score pairs of vectors. Shape: (n, 2, D) to (n,)."""
        loaded = self._find(name, version, Task.SCORE, Reads.VECTOR_PAIR)
        checked = self._checked(pairs.reshape(-1, pairs.shape[-1])).reshape(pairs.shape)
        return _scores(loaded.run(list(checked)))

    def score_texts(
        self, name: str, version: str, *, first: Sequence[bytes], second: Sequence[bytes]
    ) -> NDArray[np.float32]:
        """Score pairs of texts that are read together. Shape: (n,)."""
        loaded = self._find(name, version, Task.SCORE, Reads.TOKEN_PAIR)
        rows = self._windows.pairs(first, second, max_tokens=_max_tokens(loaded.head))
        return _scores(loaded.run(rows))

    def answer(
        self, name: str, version: str, *, question: bytes, contexts: Sequence[str], count: int
    ) -> list[Found]:
        """Read the best spans of each context.

        Raises:
            QuestionTooLong: the question leaves no room for a context.
        """
        loaded = self._find(name, version, Task.ANSWER, Reads.TOKEN_PAIR)
        head = loaded.head
        assert head.stride is not None
        cut = [
            self._windows.windows(
                question, context, max_tokens=_max_tokens(head), stride=head.stride
            )
            for context in contexts
        ]
        outputs = iter(loaded.run([row for rows in cut for row in rows]))
        found = []
        for rows in cut:
            own = [next(outputs) for _ in rows]
            logits = [(output["start"], output["end"]) for output in own]
            found.append(best_spans(rows, logits, count=count))
        return found

    def close(self) -> None:
        """Finish the waiting inputs and end all lanes; no call may come any more."""
        for loaded in self._loaded.values():
            loaded.close()

    def _open(self, loaded: LoadedHead) -> _Loaded:
        head = loaded.head
        if head.space != self._space.id:
            raise HeadInvalid(
                f"head {head.name}: expected one of space {self._space.id}, got {head.space}"
            )
        base = self._weights.take(head.base_weights)

        def session(cores: int) -> ort.InferenceSession:
            return open_session(
                loaded.data[heads.GRAPH],
                heads.GRAPH,
                threads=cores,
                device=self._device,
                optimisation=self._optimisation,
                base=base,
            )

        # on a GPU neither cores nor priorities tell calls apart
        by_length = head.reads.tokens and self._device is Device.CPU
        opened = _Loaded(head, session, cores=self._threads, by_length=by_length, load=self._load)
        try:
            _check_golden(opened, loaded.data[heads.GOLDEN])
        except HeadInvalid:
            opened.close()
            raise
        return opened

    def _find(self, name: str, version: str, task: Task, reads: Reads) -> _Loaded:
        loaded = self._loaded.get((name, version))
        if loaded is None:
            raise HeadUnknown(f"head {name} {version} is not loaded")
        if (loaded.head.task, loaded.head.reads) != (task, reads):
            raise HeadUnknown(
                f"expected head {name} to {task} from {reads}; it does {loaded.head.task} from "
                f"{loaded.head.reads}"
            )
        return loaded

    def _checked(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if vectors.ndim != 2 or (len(vectors) and vectors.shape[1] != self._space.dim):
            raise VectorInvalid(f"expected vectors of dim {self._space.dim}, got {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise VectorInvalid("expected finite values, got NaN or infinity")
        return np.ascontiguousarray(vectors, np.float32)


def _check_golden(loaded: _Loaded, data: bytes) -> None:
    lines = data.splitlines()
    name = loaded.head.name
    if len(lines) < heads.GOLDEN_LINES:
        raise HeadInvalid(f"head {name}: expected >= {heads.GOLDEN_LINES} golden samples")
    for number, line in enumerate(lines, start=1):
        try:
            sample = json.loads(line)
            given = {
                n: np.array([v], np.float32 if n in _FLOATS else np.int64)
                for n, v in sample["inputs"].items()
            }
            wanted = {n: np.array(v, np.float32) for n, v in sample["outputs"].items()}
            found = loaded.session_run(given)
        except Exception as exc:  # malformed JSON, missing keys, whatever the runtime raises
            raise HeadInvalid(f"head {name}: golden sample {number} cannot run: {exc!r}") from exc
        for output in _OUTPUTS[loaded.head.task]:
            if output not in wanted or wanted[output].shape != found[output][0].shape:
                raise HeadInvalid(f"head {name}: golden sample {number} does not fit {output}")
            strayed = np.abs(found[output][0] - wanted[output])
            if not (strayed <= heads.GOLDEN_TOLERANCE).all():  # also where the graph gave NaN
                raise HeadInvalid(
                    f"head {name}: golden sample {number}: {output} differs by {strayed.max():.1e}"
                )


def _classified(outputs: Sequence[Outputs], head: Head) -> Classified:
    logits = np.zeros((len(outputs), len(head.labels)), np.float32)
    for index, output in enumerate(outputs):
        logits[index] = output["logits"]
    if not outputs or "feature" not in outputs[0]:
        return Classified(logits, None)
    return Classified(logits, np.stack([output["feature"] for output in outputs]))


def _scores(outputs: Sequence[Outputs]) -> NDArray[np.float32]:
    return np.array([output["score"] for output in outputs], np.float32)


def _max_tokens(head: Head) -> int:
    assert head.max_tokens is not None  # heads that read tokens have one: verso_core.heads
    return head.max_tokens
