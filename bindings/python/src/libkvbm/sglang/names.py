"""Page hashes of SGLang as keys of libkvbm."""
from __future__ import annotations

import hashlib
from typing import Sequence

from ..key import Keys
from ..namespace import Namespace

_HASH_BYTES = 32  # SHA-256, in hexadecimal in SGLang
_TEXT = b"sglang key as text\0"


def digests(keys: Sequence[str]) -> bytes:
    """32 bytes for each key: of SGLang's plain hashes what they say; of keys with more in them, such as those of the
    unified scheme ({hash}_{digest}_L{layers}_H{heads}), their own hash."""
    if all(len(key) == 2 * _HASH_BYTES for key in keys):
        try:
            plain = bytes.fromhex("".join(keys))
        except ValueError:
            plain = b""
        if len(plain) == _HASH_BYTES * len(keys):  # fromhex skips blanks: those are not hashes
            return plain
    return b"".join(_digest(key) for key in keys)


def names(ns: Namespace, digest: bytes) -> Keys:
    return Keys.from_hashes(ns, digest, _HASH_BYTES)


def _digest(key: str) -> bytes:
    if len(key) == 2 * _HASH_BYTES:
        try:
            plain = bytes.fromhex(key)
        except ValueError:
            plain = b""
        if len(plain) == _HASH_BYTES:
            return plain
    return hashlib.sha256(_TEXT + key.encode("utf-8", "surrogatepass")).digest()
