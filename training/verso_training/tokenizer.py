"""The decoder's tokenizer: byte-level BPE that loses nothing.

Steps:

1. Every digit stands alone, with the space before it if there is one, so that numbers, times and
   addresses are spelt from ten symbols instead of thousands of rare ones.
2. The GPT-2 pattern splits the rest into words (Radford et al. 2019, section 2.2).
3. Bytes are mapped to printable symbols and merged (Sennrich et al. 2016). All 256 symbols are in
   the vocabulary, so that any valid UTF-8 text can be written.

Ids 0 to V-3 belong to the tokenizer. bos = V-2 and eos = V-1 are added by the code around it and
never appear in the tokenizer, hence no text can spell them.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_IDS = 2
"""bos and eos."""


def fit(texts: Iterable[str], *, vocab: int) -> Tokenizer:
    """Train a tokenizer of ``vocab`` - 2 ids; small texts may give fewer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" ?[0-9]"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - SPECIAL_IDS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Token ids of each text, without bos and eos."""
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
