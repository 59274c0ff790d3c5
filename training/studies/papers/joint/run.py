"""One joint training within a budget of processor time."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from studies.papers.joint.arms import JointEncoder
from studies.papers.joint.examples import Examples, Guard
from studies.papers.joint.losses import as_stored, similarity
from studies.tasks import objectives
from verso_training.config import Recipe
from verso_training.data import dataset
from verso_training.data.dataset import PADDING, Batch
from verso_training.data.sources import Split
from verso_training.decoder.loss import tied_cross_entropy
from verso_training.decoder.model import Decoder
from verso_training.decoder.train import Progress, budget_share, optimisers, rate_share
from verso_training.encoder import SentenceEncoder, padded, token_ids

STATE = "state.pt"
_MASK = "[MASK]"
_ENCODED = 10_000
"""Texts whose token ids are made at once: what the tokenizer returns takes far more than ids."""
_SHARE_MASKED = 4
"""One chunk in four is read once more with masked tokens, which costs as much as reading it."""


@dataclass(frozen=True)
class Weights:
    """Of the losses beside self-generation, and the encoder's learning rate.

    similarity: of the squared difference of cosines
    cosine: of the scored pairs
    masked: of the masked language model
    rate: of AdamW on the encoder's weights; an adapter, which starts at nothing, takes ten times
    """

    similarity: float = 100.0
    cosine: float = 0.2
    masked: float = 0.02
    rate: float = 1e-4


OLD_SPACE = Weights()
"""Of the rows in ``docs/research/papers.md``."""


@dataclass(frozen=True)
class Models:
    """What is trained, and the encoder whose cosines are kept."""

    encoder: JointEncoder
    decoder: Decoder
    old: SentenceEncoder
    tokenizer: Tokenizer


def _pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> list[array[int]]:
    """Return the encoder's token ids of each text, once for all epochs."""
    found: list[array[int]] = []
    for start in range(0, len(texts), _ENCODED):
        encoded = tokenizer.encode_batch_fast(list(texts[start : start + _ENCODED]))
        found.extend(array("i", token_ids(one.ids)) for one in encoded)
    return found


class JointRun:
    """Trains encoder and decoder together in one folder; goes on where it was stopped.

    Args:
        recipe: Budget, rates and sizes; ``minutes`` are of ``clock``. The rates decay with the
            share of them that has passed or with that of ``max_steps``, whichever is further.
        models: To train.
        examples: Texts that keep the space.
        data: Folder of a prepared data set, its vectors the old encoder's.
        folder: Of the run.
        scale: Of the int8 space.
        weights: Of the losses.
        clock: Seconds of the budget: by default the processor's, with a GPU the wall's.
    """

    def __init__(
        self,
        recipe: Recipe,
        models: Models,
        examples: Examples,
        *,
        data: Path,
        folder: Path,
        scale: float,
        weights: Weights = OLD_SPACE,
        clock: Callable[[], float] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.config, self.models, self.examples = recipe.train, models, examples
        self.folder, self.scale, self.weights = folder, scale, weights
        torch.manual_seed(self.config.seed)
        torch.set_num_threads(self.config.threads)
        self.data = dataset.load(data, Split.TRAIN)
        read = self.data.chunks if models.encoder.learning() else []
        self.pieces = _pieces(models.tokenizer, [chunk.text for chunk in read])
        self.bos, self.eos = recipe.model.bos, recipe.model.eos
        for module in (models.encoder, models.decoder, models.old):
            module.to(self.config.device)
        models.decoder.train()
        self.optimisers = [*optimisers(models.decoder, self.config), *self._own_optimiser()]
        self.progress = Progress()
        self.lost: dict[str, float] = {}
        if (folder / STATE).exists():
            self._restore()
        on_cpu = torch.device(self.config.device).type == "cpu"
        self._clock = clock or (time.process_time if on_cpu else time.monotonic)
        self._began_s = self._clock() - self.progress.elapsed_s

    def train(self) -> None:
        """Train until the budget is spent, and save. The models stay on the recipe's device."""
        budget_s, saved_s = self.config.minutes * 60, self.progress.elapsed_s
        with tqdm(total=round(budget_s), unit="s", desc=self.folder.name, mininterval=5.0) as bar:
            for batch in self._batches():
                share = budget_share(self.config, self.progress.elapsed_s, self.progress.step)
                if share >= 1.0:
                    break
                self._step(batch, rate_share(self.config, share, self.progress.step))
                bar.set_postfix({k: f"{v:.3f}" for k, v in self.lost.items()}, refresh=False)
                bar.update(min(round(self.progress.elapsed_s), bar.total) - bar.n)
                if self.progress.elapsed_s - saved_s > self.config.checkpoint_minutes * 60:
                    self.save()
                    saved_s = self.progress.elapsed_s
        self.save()

    def save(self) -> None:
        """Write weights, optimisers and progress; the file replaces the old one whole."""
        state = {
            "encoder": self.models.encoder.state_dict(),
            "decoder": self.models.decoder.state_dict(),
            "optimisers": [one.state_dict() for one in self.optimisers],
            "progress": asdict(self.progress),
            "torch_rng": torch.get_rng_state(),
        }
        draft = self.folder / "state.new"
        torch.save(state, draft)
        draft.replace(self.folder / STATE)

    def _restore(self) -> None:
        state = torch.load(self.folder / STATE, weights_only=True, map_location="cpu")
        self.models.encoder.load_state_dict(state["encoder"])
        self.models.decoder.load_state_dict(state["decoder"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.progress = Progress(**state["progress"])
        torch.set_rng_state(state["torch_rng"])

    def _own_optimiser(self) -> list[torch.optim.Optimizer]:
        encoder = self.models.encoder
        if not encoder.learning():
            return []
        rate = self.weights.rate * (1.0 if encoder.adapter is None else 10.0)
        made = torch.optim.AdamW(encoder.learning(), lr=rate, weight_decay=0.01)
        for group in made.param_groups:
            group["initial_lr"] = rate
        return [made]

    def _batches(self) -> Iterator[Batch]:
        lengths, progress = self.data.lengths(), self.progress
        while True:
            rng = np.random.default_rng((self.config.seed, progress.epoch))
            planned = dataset.plan(lengths, tokens_per_step=self.config.tokens_per_step, rng=rng)
            while progress.batch < len(planned):
                rows = planned[progress.batch]
                progress.batch += 1  # before the step, after which the progress is saved
                yield dataset.collate(self.data, rows, bos=self.bos, eos=self.eos)
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _step(self, batch: Batch, rate: float) -> None:
        batch = batch.to(self.config.device)
        kind = torch.device(self.config.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.config.bfloat16):
            losses = self._losses(batch)
        sum(losses.values()).backward()  # type: ignore[union-attr]
        learning = [*self.models.decoder.parameters(), *self.models.encoder.learning()]
        torch.nn.utils.clip_grad_norm_(learning, self.config.clip_norm)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["initial_lr"] * rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.lost = {name: float(loss.detach()) for name, loss in losses.items()}
        self.progress.step += 1
        self.progress.tokens += int((batch.targets != PADDING).sum())
        self.progress.elapsed_s = self._clock() - self._began_s

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        if not self.models.encoder.learning():
            return {"text": self._generation(batch.vectors, batch)}
        guard = self.examples.draw(self.progress.step)
        chunks = [self.pieces[row] for row in batch.indices]
        vectors = self._encoded([*chunks, *guard.texts])
        weights, count = self.weights, len(chunks)
        found = {
            "text": self._generation(vectors[:count], batch),
            "similarity": weights.similarity * similarity(vectors, self._old(batch, guard)),
            "cosine": weights.cosine * self._cosine(guard),
        }
        if self.progress.step % _SHARE_MASKED == 0:
            found["masked"] = weights.masked * _SHARE_MASKED * self._masked(chunks)
        return found

    def _generation(self, vectors: Tensor, batch: Batch) -> Tensor:
        read = as_stored(vectors, self.config, scale=self.scale)
        states = self.models.decoder.teacher_forced(batch.tokens, read)
        counted = (batch.targets != PADDING).flatten().nonzero()[:, 0]
        picked = states.flatten(0, 1).index_select(0, counted)
        if self.config.bfloat16:
            picked = picked.bfloat16()
        targets = batch.targets.flatten().index_select(0, counted)
        return tied_cross_entropy(picked, self.models.decoder.embedding.weight, targets)

    def _encoded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return vectors in the order of the rows, long and short ones read apart."""
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        half = len(order) // 2
        parts = [part for part in (order[:half], order[half:]) if part]
        found = torch.cat(
            [self.models.encoder(*self._padded([rows[i] for i in part])) for part in parts]
        )
        back = torch.empty(len(order), dtype=torch.int64)
        back[torch.tensor(order)] = torch.arange(len(order))
        return found.float()[back]

    @torch.no_grad()
    def _old(self, batch: Batch, guard: Guard) -> Tensor:
        return torch.cat([batch.vectors, self.models.old(*self._padded(guard.texts)).float()])

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        ids, mask = padded(rows)
        return ids.to(self.config.device), mask.to(self.config.device)

    def _cosine(self, guard: Guard) -> Tensor:
        vectors = self._encoded([*guard.left, *guard.right])
        left, right = vectors.chunk(2)
        scores = torch.tensor(guard.scores, device=left.device)
        return objectives.cosine_mse(left, right, scores)

    def _masked(self, chunks: Sequence[Sequence[int]]) -> Tensor:
        ids, mask = padded(chunks[::_SHARE_MASKED])
        tokenizer, encoder = self.models.tokenizer, self.models.encoder
        made = objectives.mask_tokens(
            ids,
            mask,
            mask_id=tokenizer.encode(_MASK, add_special_tokens=False).ids[0],
            vocab=tokenizer.get_vocab_size(),
            generator=torch.Generator().manual_seed(self.progress.step),
        )
        near = self.config.device
        states = encoder.states(made.ids.to(near), (mask * ~made.hidden).to(near))
        embedding = encoder.base.bert.get_parameter("embeddings.word_embeddings.weight")
        return objectives.masked_language_model(
            states,
            embedding,
            targets=ids.to(near),
            attended=mask.bool().to(near),
            chosen=made.chosen.to(near),
        )
