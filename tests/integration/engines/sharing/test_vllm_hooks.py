"""One hook of vLLM finds what another stored, if both are set to share: all pairs, on a real vLLM each."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import RANDOM, Engine, EngineError
from hooks import kv_transfer

HOOKS = ("tiering", "direct", "connector")
TOKENS = [(7 * i * i + 3 * i) % 490 + 3 for i in range(330)]
# Difference between a prompt computed at once and one with a loaded prefix: the order of sums in bfloat16.
NOISE = 0.35


def hooked(hook: str, disk: Path, identity: str) -> dict[str, Any]:
    if hook != "connector":
        # vLLM's own OffloadingConnector does not tell the tier which model it is of.
        ours = {"kv_connector": "KvbmOffloadingConnector", "kv_connector_module_path": "libkvbm.vllm",
                "kv_load_failure_policy": "recompute"}
        return {"kv_transfer_config": kv_transfer(hook, disk, identity=identity) | ours}
    extra = {"settings": {"host.capacity": "64MiB"}, "disk": str(disk), "disk_capacity": "1GiB", "identity": identity}
    return {"kv_transfer_config": {
        "kv_connector": "KvbmConnector", "kv_connector_module_path": "libkvbm.vllm.connector", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra}}


@pytest.fixture(scope="module")
def stored(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By hook: a disk on which it has stored a prompt, what the engine said, and the bytes of its blocks."""
    found = {}
    for hook in HOOKS:
        disk = tmp_path_factory.mktemp(hook)
        with Engine(smollm2, hooked(hook, disk, "pages")) as engine:
            output = engine.generate([TOKENS], logprobs=0)[0]
            found[hook] = (disk, output, engine.kv())
    return found


@pytest.mark.parametrize("by", HOOKS)
@pytest.mark.parametrize("of", HOOKS)
def test_blocks_of_one_hook_are_loaded_by_another(smollm2: Path, stored: dict[str, Any], of: str, by: str) -> None:
    if of == by:
        pytest.skip("the hook itself: tests of vllm and connector")
    disk, computed, kv = stored[of]
    with Engine(smollm2, hooked(by, disk, "pages")) as engine:
        output = engine.generate([TOKENS], logprobs=0)[0]
        assert output.cached == 320 and output.agrees(computed, NOISE)
        # The last token's block is not whole; of the ten that were stored every byte is the same.
        again = engine.kv()
        assert len(set(kv) & set(again)) >= 10
        assert all(again[name] == digest for name, digest in kv.items() if name in again)
        # Another salt is other blocks; what an earlier reader has computed with its own lies on this disk, too.
        assert engine.generate([TOKENS], salt=f"{of} {by}")[0].cached == 0


def test_without_being_told_to_they_are_clean_misses(smollm2: Path, stored: dict[str, Any]) -> None:
    disk, computed, _ = stored["tiering"]
    with Engine(smollm2, hooked("connector", disk, "engine")) as engine:
        output = engine.generate([TOKENS], logprobs=0)[0]
        assert output.cached == 0 and output.agrees(computed, NOISE)


def test_another_block_size_is_a_clean_miss(smollm2: Path, stored: dict[str, Any]) -> None:
    disk, computed, _ = stored["connector"]
    with Engine(smollm2, {**hooked("direct", disk, "pages"), "block_size": 64}) as engine:
        assert engine.generate([TOKENS])[0].cached == 0


def test_what_cannot_be_shared_is_refused_with_a_sentence(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="identity is 'token'"):
        Engine(tiny, {**RANDOM, **hooked("connector", tmp_path, "token")})
