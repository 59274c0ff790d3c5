"""Kinds of jobs that need models only: embed, score, and the lists of models and heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verso_core.jobs import EmbedItem, EmbedParams, Kind, NoItem, Result, Slice
from verso_core.jobs.heads.listing import HeadInfo, HeadList, HeadsParams
from verso_core.jobs.heads.report import HeadFigures, HeadReport
from verso_core.jobs.heads.score import ScoreItem, ScoreParams
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.models import text_field
from verso_core.jobs.registry import ModelsParams
from verso_worker.records.outputs import Timings
from verso_worker.rules.kinds.call import Call, Rule
from verso_worker.rules.kinds.heads import HeadJobs
from verso_worker.rules.models import ModelOperations
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.outcome import SliceOutcome
from verso_worker.rules.score import Score


@dataclass(frozen=True, slots=True)
class Embed:
    """Returns the vectors of texts."""

    models: Models

    def run(self, works: Sequence[Slice[EmbedParams, EmbedItem]]) -> list[Result[Embedded]]:
        """Run embed slices in one call of the engine; return a result for each, in order.

        Raises:
            VersoError: the call failed; the slices may still be run one by one.
        """
        timings = Timings()
        rests: dict[str | None, Iterator[Embedded]] = {}
        with timings.phase("infer"):
            for name in {work.params.artifact for work in works}:
                own = [work for work in works if work.params.artifact == name]
                texts = [item.text for work in own for item in work.accepted.values()]
                rests[name] = iter(self._embedded(name, texts) if texts else ())
        return [
            Result(
                work.answered({i: next(rests[work.params.artifact]) for i in work.accepted}),
                dict(timings.spent),
            )
            for work in works
        ]

    def _embedded(self, artifact: str | None, texts: Sequence[bytes]) -> list[Embedded]:
        """Return the vectors of texts by an artifact; None is the current one."""
        encoded = self.models.named(artifact).recorder.engine.encode(texts)
        vectors = encoded.vectors.astype("<f4", copy=False)
        return [
            Embedded(tokens=tokens, truncated=truncated, vector=vector.tobytes())
            for vector, tokens, truncated in zip(
                vectors, encoded.tokens, encoded.truncated, strict=True
            )
        ]


@dataclass(frozen=True, slots=True)
class ModelKinds:
    """Runs the kinds that read and write no collection."""

    embed: Embed
    score: Score
    registry: ModelOperations
    jobs: HeadJobs

    def table(self) -> dict[Kind, Rule]:
        """Return the rule of each kind."""
        return {
            Kind.EMBED: lambda work, _: SliceOutcome(self.embed.run([work])[0]),
            Kind.SCORE: self._score,
            Kind.HEADS: self._heads,
            Kind.MODELS: self._models,
        }

    def _score(self, work: Slice[ScoreParams, ScoreItem], call: Call) -> SliceOutcome:
        return self.jobs.run(
            [work.params.head],
            work,
            lambda job, own: self.score.run(work, job=job, timings=own.timings),
            call,
        )

    def _heads(self, work: Slice[HeadsParams, NoItem], _: Call) -> SliceOutcome:
        """Describe all heads, or return the report of one."""
        name, heads = work.params.report, self.jobs.heads
        if name is None:
            states = tuple(HeadInfo.model_validate(state) for state in heads.states())
            return SliceOutcome(Result([HeadList(heads=states)]))
        head, card = heads.report(name, work.params.channel)
        figures = HeadFigures.of(head, card.decode())
        about = {"head": name, "version": head.version, "figures": figures}
        return SliceOutcome(Result([HeadReport.model_validate(about | text_field(card))]))

    def _models(self, work: Slice[ModelsParams, NoItem], _: Call) -> SliceOutcome:
        return SliceOutcome(self.registry.run(work))
