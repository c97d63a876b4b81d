"""How blocks are named that AIBrix keeps in libkvbm: by their tokens and all before, cryptographically."""
from __future__ import annotations

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("aibrix_kvcache", reason="pip install aibrix-kvcache==0.8.0")
    import aibrix_kvcache
    from aibrix_kvcache.l2.key_builders import KeyBuilder
    from aibrix_blocks import spec

    from libkvbm.aibrix import hook
    from libkvbm.aibrix.names import TokenKeyBuilder
    from libkvbm.engine import ConfigurationError
    from libkvbm.engine.facts.aibrix import TOKENS, hashing

pytestmark = pytest.mark.filterwarnings("default")
BLOCK, N = 16, 4


def builder(name: str) -> Any:
    return KeyBuilder.create(name, block_size=BLOCK)


@pytest.mark.parametrize("made", ["tokens", "RAW"])
def test_names_have_all_tokens_in_them_up_to_their_own(made: str) -> None:
    def names(tokens: list[int]) -> list[bytes]:
        keys = TokenKeyBuilder(BLOCK) if made == "tokens" else builder(made)
        return [name for _, name in keys.build(None, aibrix_kvcache.TokenListView(tokens))]

    plain = names([7] * (BLOCK * N))
    assert len(plain) == N and plain == names([7] * (BLOCK * N))
    for at in range(BLOCK * N):
        tokens = [7] * (BLOCK * N)
        tokens[at] = 8
        assert [a == b for a, b in zip(plain, names(tokens), strict=True)] == [i < at // BLOCK for i in range(N)]


@pytest.mark.parametrize("given, weak, used", [
    ("ROLLING_HASH", "", "tokens"), ("SIMPLE_HASH", "", "tokens"), ("RAW", "", "raw"), ("ROLLING_HASH", "1", "ro"),
    ("SIMPLE_HASH", "1", "sim"), ("RAW", "1", "raw")])
def test_farmhash_names_blocks_only_where_the_operator_accepts_it(given: str, weak: str, used: str,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIBRIX_KV_CACHE_OL_KVBM_MODEL", "m@1")
    monkeypatch.setenv("AIBRIX_KV_CACHE_OL_KVBM_WEAK_HASHES", weak)
    chosen = hook._key_builder(builder(given), BLOCK)
    assert chosen.signature == used
    assert hashing("connection", chosen, bool(weak)).startswith(f"connection {used} ")
    assert hook._key_builder(None, BLOCK).signature in TOKENS


@pytest.mark.parametrize("given", ["ROLLING_HASH", "SIMPLE_HASH"])
def test_a_connector_takes_no_farmhash_from_elsewhere(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from libkvbm.aibrix import KvbmConnector, Options

    options = Options.from_envs({"AIBRIX_KV_CACHE_OL_KVBM_MODEL": "m@1"})
    with pytest.raises(ConfigurationError, match="FarmHasher, which is not cryptographic.*weak_hashes"):
        KvbmConnector("connection", options, spec(), builder(given))
    with pytest.raises(ConfigurationError, match="not cryptographic"):
        KvbmConnector("connection", options, spec())
