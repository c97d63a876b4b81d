"""Inputs of requests in LMCache's own names of chunks."""
from __future__ import annotations

import warnings
from types import SimpleNamespace as Made

import pytest

with warnings.catch_warnings():  # LMCache's dependencies have their own
    warnings.simplefilter("ignore")
    pytest.importorskip("lmcache", reason="LMCache is not installed: docs/engines/lmcache.md says how")
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0")
    from lmcache.integration.vllm.utils import apply_mm_hashes_to_token_ids
    from lmcache.v1.multiprocess.token_hasher import TokenHasher

    from libkvbm.engine import ConfigurationError
    from libkvbm.engine.facts.lmcache import hashing_of

pytestmark = pytest.mark.filterwarnings("default")
CHUNK, N = 16, 4


@pytest.fixture(autouse=True)
def vllms_own_hash_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """LMCache makes another one, for the whole process."""
    try:
        from vllm.v1.core import kv_cache_utils
    except ImportError:
        return
    for name in ("NONE_HASH", "_NONE_HASH_SEED"):
        monkeypatch.setattr(kv_cache_utils, name, getattr(kv_cache_utils, name, None), raising=False)


def names(tokens: list[int], algorithm: str = "blake3") -> list[bytes]:
    return TokenHasher(CHUNK, algorithm).compute_chunk_hashes(tokens)


def alike(one: list[bytes], other: list[bytes]) -> int:
    """Leading chunks of equal names; of what follows none may be equal."""
    same = [a == b for a, b in zip(one, other, strict=True)]
    n = same.index(False) if False in same else len(same)
    assert not any(same[n:])
    return n


def test_names_have_all_tokens_in_them_up_to_their_own() -> None:
    plain = names([7] * (CHUNK * N))
    assert len(plain) == N and plain == names([7] * (CHUNK * N))
    for at in range(CHUNK * N):
        tokens = [7] * (CHUNK * N)
        tokens[at] = 8
        assert alike(plain, names(tokens)) == at // CHUNK


def test_images_are_in_the_names_from_their_chunk_on() -> None:
    def prompt(*identifiers: str) -> list[bytes]:
        tokens = torch.full((CHUNK * N,), 7)
        apply_mm_hashes_to_token_ids(tokens, list(identifiers), [Made(offset=20, length=8)] * len(identifiers))
        return names(tokens.tolist())

    assert alike(prompt("cat"), prompt("cat")) == N
    assert alike(prompt("cat"), prompt("dog")) == 1
    assert alike(prompt("cat"), prompt()) == 1


@pytest.mark.parametrize("algorithm, length", [("blake3", 32), ("sha256_cbor", 32), ("xxhash", 16), ("there is no such", 8)])
def test_the_length_of_a_name_tells_what_made_it(algorithm: str, length: int) -> None:
    """LMCache replaces an unknown algorithm by Python's builtin hash."""
    try:
        made = names([7] * CHUNK, algorithm)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    assert [len(name) for name in made] in ([length], [8])
    if len(made[0]) == 32:
        assert hashing_of(32, False) == "LMCache"
    else:
        with pytest.raises(ConfigurationError, match="--hash-algorithm blake3.*weak_hashes"):
            hashing_of(len(made[0]), False)
