"""The decoder: a small transformer that reads a sentence vector through memory slots.

Decodable Sentence-BERT reconstructs a text from its sentence vector. There the decoder attends to
the vector by cross-attention; over a single vector a softmax has one term, so whatever the query,

    CrossAttention(q, v) = softmax(q k(v) / sqrt(H)) W_o W_v v = W_o W_v v,

a constant added to every position (``Conditioning.CROSS`` is exactly this). Memory slots
give attention something to choose from. The vector v is spread over S memory slots, which every
layer may read as if they were S earlier tokens:

    M = reshape(W_m sqrt(D) v + b_m)            M in R^(S x W)          memory slots
    b = W_b sqrt(D) v                           b in R^W                bias
    K_l = norm(W_k,l norm(M)),  V_l = W_v,l norm(M)                     prefix of layer l
    x_t = norm(E[token_t]) + b                                          input
    x  <- x + W_o,l Attention([K_l; norm(rope(k))], [V_l; v])           attention with prefix
    x  <- x + W_2,l relu(W_1,l norm(x))^2                               feed-forward
    z_t = E norm(x_t)                                                   logits, tied to the input

The parts and where they come from:

- norm: RMS normalisation without gain (Zhang & Sennrich 2019, eq. 4); q and k are normalised too
  ("QK-norm", Henry et al. 2020), which keeps attention scores within +-sqrt(H) and lets the
  matrices take the large steps of Muon.
- rope: rotary positions (Su et al. 2021, eq. 34) on tokens only. Slots have no order.
- Grouped queries (Ainslie et al. 2023): G key/value heads serve all query heads, which halves
  the cache that a worker carries through a decoding step.
- relu^2 (So et al. 2021). Output projections start at zero, so every block starts as identity.

Letters in shapes: B batch, T new tokens, P past entries (slots first, then earlier tokens), S
slots, D vector width, W model width, N query heads, G key/value heads, H head width, V vocabulary.

The same ``Decoder.forward`` is trained and exported. In training the past is exactly the slots; a
worker appends the keys and values of the tokens it has decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verso_training.config import Conditioning, ModelConfig

CONFIDENCE_LIMIT = 20.0
"""Log-odds of the top token are cut to +-20: float32 cannot represent differences beyond."""


@dataclass(frozen=True)
class Memory:
    """What the decoder reads of a sentence vector.

    Attributes:
        bias: Added to every input embedding. With ``Conditioning.CROSS`` zeros, and behind them
            the term that each layer adds to every position. Shape: (B, W) or (B, (1 + L) W).
        keys: One tensor per layer. Shape: (B, G, S, H).
        values: One tensor per layer. Shape: (B, G, S, H).
    """

    bias: Tensor
    keys: list[Tensor]
    values: list[Tensor]


@dataclass(frozen=True)
class Output:
    """The outputs of one pass of the decoder.

    Attributes:
        states: Normalised last states, before the output embedding. Shape: (B, T, W).
        keys: Keys of the new tokens, rotated, one tensor per layer. Shape: (B, G, T, H).
        values: Values of the new tokens, one tensor per layer. Shape: (B, G, T, H).
    """

    states: Tensor
    keys: list[Tensor]
    values: list[Tensor]


def norm(x: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last axis (Zhang & Sennrich 2019, eq. 4, gain 1)."""
    return F.rms_norm(x, (x.shape[-1],), eps=1e-6)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i+H/2}) by its position's angle (Su et al. 2021, eq. 34).

    Args:
        x: Queries or keys. Shape: (B, heads, T, H).
        cos: Shape: (B, 1, T, H/2).
        sin: Shape: (B, 1, T, H/2).
    """
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class Attention(nn.Module):
    """Causal attention over the new tokens, with a prefix of past keys and values."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_dim = config.head_dim
        self.query = nn.Linear(config.width, config.heads * config.head_dim, bias=False)
        self.key = nn.Linear(config.width, config.kv_heads * config.head_dim, bias=False)
        self.value = nn.Linear(config.width, config.kv_heads * config.head_dim, bias=False)
        self.out = nn.Linear(config.heads * config.head_dim, config.width, bias=False)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        *,
        mask: Tensor,
        past: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend.

        Args:
            x: Normalised states. Shape: (B, T, W).
            rotation: cos and sin of the new positions. Shape: (B, 1, T, H/2) each.
            mask: Added to the scores, 0 or very negative. Shape: (B or 1, 1, T, P + T).
            past: Keys and values to attend to besides the new ones. Shape: (B, G, P, H) each.

        Returns:
            The update of x, shape (B, T, W), and the new keys and values, shape (B, G, T, H).
        """
        batch, length, _ = x.shape
        q = norm(self._split(self.query(x), self.heads))  # (B, N, T, H)
        k = norm(self._split(self.key(x), self.kv_heads))  # (B, G, T, H)
        v = self._split(self.value(x), self.kv_heads)  # (B, G, T, H)
        q, k = rotate(q, *rotation), rotate(k, *rotation)
        keys = torch.cat([past[0].to(k.dtype), k], dim=2)  # (B, G, P+T, H)
        values = torch.cat([past[1].to(v.dtype), v], dim=2)
        # Queries of one group are rows of a single matrix: the shared keys are multiplied once
        # and never copied.
        share = self.heads // self.kv_heads
        q = q.reshape(batch, self.kv_heads, share * length, self.head_dim)
        scores = q @ keys.transpose(2, 3) * self.head_dim**-0.5  # (B, G, N/G * T, P+T)
        scores = scores + mask.repeat(1, 1, share, 1).to(scores.dtype)
        mixed = torch.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype) @ values
        mixed = mixed.reshape(batch, self.heads, length, self.head_dim).transpose(1, 2)
        return self.out(mixed.reshape(batch, length, -1)), k, v

    def prefix(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the memory slots. Shape: (B, S, W) -> (B, G, S, H) each."""
        keys = norm(self._split(self.key(slots), self.kv_heads))
        return keys, self._split(self.value(slots), self.kv_heads)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], heads, self.head_dim).transpose(1, 2)


class FeedForward(nn.Module):
    """W_2 relu(W_1 x)^2 (So et al. 2021)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.mlp_ratio * config.width, bias=False)
        self.down = nn.Linear(config.mlp_ratio * config.width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (B, T, W) -> (B, T, W)."""
        return self.down(F.relu(self.up(x)).square())  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """W_o W_v v: cross-attention over a single vector, which does not depend on the query."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = config.vector_dim**0.5
        self.value = nn.Linear(config.vector_dim, config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, vector: Tensor) -> Tensor:
        """Shape: (B, D) -> (B, W)."""
        return self.out(self.value(vector * self.scale))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each on the normalised input, each added to it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        crossed = config.conditioning is Conditioning.CROSS
        self.cross = CrossAttention(config) if crossed else None


class VectorMemory(nn.Module):
    """Spread a sentence vector over memory slots and a bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = config.vector_dim**0.5  # a unit vector's entries get variance 1
        self.count = config.slots
        self.slots = nn.Linear(config.vector_dim, config.slots * config.width)
        self.bias = nn.Linear(config.vector_dim, config.width, bias=False)

    def forward(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Slots, shape (B, S, W), and bias, shape (B, W), of vectors of shape (B, D)."""
        scaled = vector * self.scale
        slots = self.slots(scaled).reshape(vector.shape[0], self.count, -1)
        return norm(slots), self.bias(scaled)


class Decoder(nn.Module):
    """The whole model. ``memory`` is exported as memory.onnx, ``forward`` as decoder.onnx."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        crossed = config.conditioning is Conditioning.CROSS
        self.vector_memory = None if crossed else VectorMemory(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        # Register the angles once per position; a decoding step never calls the float32 sine and
        # cosine of the host's library.
        steps = torch.arange(config.head_dim // 2, dtype=torch.float64)
        speed = config.rope_base ** (-2.0 * steps / config.head_dim)
        angles = torch.arange(config.max_tokens, dtype=torch.float64)[:, None] * speed
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self._initialise()

    @property
    def layers(self) -> list[Block]:
        """Return the blocks, bottom up."""
        return [cast(Block, block) for block in self.blocks]

    def memory(self, vector: Tensor) -> Memory:
        """Return what the layers read of a vector; all zeros means "no vector".

        Args:
            vector: The stored, dequantised sentence vector. Shape: (B, D), float32.
        """
        if self.vector_memory is None:
            return self._crossed(vector)
        slots, bias = self.vector_memory(vector)
        prefixes = [block.attention.prefix(slots) for block in self.layers]
        return Memory(bias, [k for k, _ in prefixes], [v for _, v in prefixes])

    def _crossed(self, vector: Tensor) -> Memory:
        config, batch = self.config, vector.shape[0]
        terms = [block.cross(vector) for block in self.layers if block.cross is not None]
        bias = torch.cat([torch.zeros_like(terms[0]), *terms], dim=-1)
        nothing = vector.new_zeros(batch, config.kv_heads, config.prefix, config.head_dim)
        return Memory(bias, [nothing] * config.layers, [nothing] * config.layers)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        bias: Tensor,
        past_mask: Tensor,
        past_keys: list[Tensor],
        past_values: list[Tensor],
    ) -> Output:
        """Run one pass over T new tokens.

        Args:
            tokens: Token ids. Shape: (B, T), int64.
            positions: Position of each token in its record; bos has 0. Shape: (B, T), int64.
            bias: From ``memory``. Shape: (B, W) or (B, (1 + L) W).
            past_mask: Added to the scores of past entries: 0 to attend, -1e9 not to.
                Shape: (B, P).
            past_keys: Slots, then earlier tokens; one tensor per layer. Shape: (B, G, P, H).
            past_values: Likewise. Shape: (B, G, P, H).
        """
        first, *terms = bias[:, None, :].chunk(bias.shape[1] // self.config.width, dim=-1)
        x = norm(self.embedding(tokens)) + first
        rotation = (self.cos[positions][:, None], self.sin[positions][:, None])
        mask = self._mask(past_mask, tokens.shape[1])
        keys, values = [], []
        for layer, block in enumerate(self.layers):
            past = (past_keys[layer], past_values[layer])
            update, k, v = block.attention(norm(x), rotation, mask=mask, past=past)
            x = x + update
            if terms:
                x = x + terms[layer]
            x = x + block.feed_forward(norm(x))
            keys.append(k)
            values.append(v)
        return Output(norm(x), keys, values)

    def logits(self, states: Tensor) -> Tensor:
        """Return the scores of every token. Shape: (..., W) -> (..., V)."""
        return F.linear(states, self.embedding.weight)

    def teacher_forced(self, tokens: Tensor, vector: Tensor) -> Tensor:
        """Return the last states for whole records; the past is the memory slots only.

        Args:
            tokens: bos and the record's tokens, padded on the right. Shape: (B, T), int64.
            vector: Shape: (B, D).

        Returns:
            Shape: (B, T, W).
        """
        memory = self.memory(vector)
        batch, length = tokens.shape
        positions = torch.arange(length, device=tokens.device).expand(batch, length)
        mask = torch.zeros(batch, memory.keys[0].shape[2], device=tokens.device)
        output = self(
            tokens,
            positions,
            bias=memory.bias,
            past_mask=mask,
            past_keys=memory.keys,
            past_values=memory.values,
        )
        return output.states  # type: ignore[no-any-return]

    def _mask(self, past_mask: Tensor, length: int) -> Tensor:
        causal = torch.full((length, length), -1e9, device=past_mask.device).triu(1)
        batch = past_mask.shape[0]
        past = past_mask[:, None, None, :].expand(batch, 1, length, -1)
        return torch.cat([past, causal.expand(batch, 1, length, length)], dim=-1)

    def _initialise(self) -> None:
        # With RMS-normalised states a logit has the standard deviation sqrt(W) * std: 0.3 here,
        # so the first loss is log V.
        nn.init.normal_(self.embedding.weight, std=0.3 * self.config.width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
        for block in self.layers:
            nn.init.zeros_(block.attention.out.weight)
            nn.init.zeros_(block.feed_forward.down.weight)
            if block.cross is not None:
                nn.init.zeros_(block.cross.out.weight)


def confidence(logits: Tensor) -> Tensor:
    """Return the log-odds of the top token, log(p / (1 - p)) = -log(sum_i exp(z_i - z_max) - 1).

    Shape: (..., V) -> (...), cut to +-CONFIDENCE_LIMIT.
    """
    others = torch.exp(logits - logits.amax(-1, keepdim=True)).sum(-1) - 1.0
    floor = torch.finfo(torch.float32).tiny
    return -torch.log(others.clamp(min=floor)).clamp(-CONFIDENCE_LIMIT, CONFIDENCE_LIMIT)
