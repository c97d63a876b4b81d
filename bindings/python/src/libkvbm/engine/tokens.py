"""Names and identity that do not depend on an engine: blocks named by their tokens, bytes in one order. What one
engine stores so, another finds, if both call the model by the same name."""
from __future__ import annotations

import builtins
import hashlib
from array import array
from typing import Iterable, Optional

from .aside import ConfigurationError
from .identity import Identity

NAME_BYTES = 32
_FIRST = b"kvbm tokens 1".ljust(NAME_BYTES, b"\0")


def token_names(tokens: Iterable[int], block_tokens: int, previous: Optional[builtins.bytes] = None) -> list[bytes]:
    """Names of consecutive full blocks: BLAKE2b-256 of the name before (of the first: a constant) and of the block's
    tokens as 32-bit little-endian numbers. Each depends on every token before it."""
    ids = array("I", tokens)
    data, size = memoryview(ids).cast("B"), 4 * block_tokens
    before, names = _FIRST if previous is None else previous, []
    for at in range(0, len(data) - size + 1, size):
        before = hashlib.blake2b(before + data[at:at + size], digest_size=NAME_BYTES).digest()
        names.append(before)
    return names


def canonical_identity(model: str, element: str, *, layers: int, heads: int, head_dim: int, tokens: int) -> Identity:
    """Of whole blocks in the order [layer][K, V][token][head][dim], with all layers and heads of the model."""
    sizes = {"bfloat16": 2, "float16": 2, "float32": 4}
    if element not in sizes:
        raise ConfigurationError(f"identity tokens knows caches of {', '.join(sizes)}, and this one is {element}")
    return Identity(model=model, element=element,
                    layout=f"[layer {layers}][K, V][token][head {heads}][dim {head_dim}]", tokens=tokens,
                    bytes=layers * 2 * tokens * heads * head_dim * sizes[element], hashing="tokens")
