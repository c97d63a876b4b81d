"""Checks whether an engine's own names of blocks are strong enough. With a weak hash, a sender of prompts can find two
prompts with one hash, and gets the KV of another's prompt."""
from __future__ import annotations

import os
from typing import Optional

from .aside import ConfigurationError

LEAST_BYTES = 16
CRYPTOGRAPHIC = ("blake2b", "blake3", "sha256", "sha256_cbor", "sha512")


def check_hashes(whose: str, algorithm: str, allowed: bool, remedy: str, n_bytes: Optional[int] = None) -> None:
    """ConfigurationError for hashes that are not cryptographic, or cut to fewer than 16 bytes, where the operator has not
    accepted that (weak_hashes). `n_bytes` is how much of a hash the engine keeps; None: all of it."""
    short = n_bytes is not None and n_bytes < LEAST_BYTES
    if allowed or algorithm in CRYPTOGRAPHIC and not short:
        return
    what = f"{n_bytes} bytes of {algorithm}" if short else f"{algorithm}, which is not cryptographic"
    raise ConfigurationError(f"{whose} names blocks by {what}: two prompts with one name are easily found, and one is then "
                             f"served the other's KV; {remedy}, or accept that with libkvbm's option weak_hashes")


def python_seed() -> Optional[str]:
    """The seed of Python's own hashes, and of others that use it; None: not set."""
    return os.environ.get("PYTHONHASHSEED")
