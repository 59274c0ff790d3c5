"""Request bodies: how much of them is accepted, and how they are read and checked."""

from verso_gateway.bodies.reading import (
    JSON,
    LARGE_BYTES,
    encodable,
    find_surrogate,
    media_type,
    off_loop,
    parse,
    read_object,
    validate,
    vector_bytes,
)

__all__ = [
    "JSON",
    "LARGE_BYTES",
    "encodable",
    "find_surrogate",
    "media_type",
    "off_loop",
    "parse",
    "read_object",
    "validate",
    "vector_bytes",
]
