"""How a value of more than MAX_WORD_BYTES bytes is spelled out.

It is often hexadecimal digits or base64, in which nothing repeats, and sometimes one pattern over
and over: the contexts are the bytes before. Blocks of the first version have it coded evenly, and
so is what follows the first bytes of a very long one, which would take too long.
"""

import numpy as np

from verso_codecs.coder import Bytes, Int, inlined
from verso_codecs.logs.memory import RULES, RULES_2, TEXT_END, Memory
from verso_codecs.logs.model import (
    DECODE,
    FOR_LONG,
    MODE,
    Model,
    code_evenly,
    code_symbol,
    set_contexts,
)
from verso_codecs.logs.parsing import mix

_MODELLED_BYTES = 1 << 14


@inlined
def code_long(model: Model, memory: Memory, source: Bytes, begin: Int, width: Int) -> None:
    """Code the bytes of a long value into the memory's text at its end.

    begin: of the bytes in `source`, when encoding
    """
    text, end = memory.text, memory.state[TEXT_END]
    writes = model.state[MODE] != DECODE
    modelled = min(width, _MODELLED_BYTES) if memory.state[RULES] >= RULES_2 else np.int64(0)
    recent: Int = np.int64(0)
    for index in range(width):
        byte: Int = np.int64(source[begin + index]) if writes else np.int64(0)
        if index < modelled:
            set_contexts(
                model,
                np.int64(801),
                mix(recent & 0xFF, np.int64(802)),
                mix(recent & 0xFFFF, np.int64(803)),
                mix(recent & 0xFFFFFF, np.int64(804)),
                mix(recent & 0xFFFFFFFF, np.int64(805)),
                mix(recent & 0xFFFFFFFF, recent >> 32),
            )
            byte = code_symbol(model, np.int64(FOR_LONG), np.int64(0), byte, np.int64(8))
        else:
            byte = code_evenly(model, byte, np.int64(256))
        text[end + index] = byte
        recent = ((recent << 8) | byte) & 0xFFFFFFFFFFFF
