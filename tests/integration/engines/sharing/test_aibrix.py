"""vLLM's KvbmConnector and AIBrix's KV cache find each other's blocks by their tokens, with equal bytes."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from engine import Engine, Output

pytest.importorskip("aibrix_kvcache", reason="AIBrix is not installed: tests/integration/engines/sharing/requirements.txt")

TOKENS = [(7 * i * i + 3 * i) % 490 + 3 for i in range(330)]
BLOCK, BLOCKS = 32, 10
HERE = Path(__file__).parent
NOISE = 0.35
# The KV that vLLM has computed, as its own kernels give it to attention: by looking at what each layer is asked to keep.
KEPT = """
import torch
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl as Impl
kept = {}
plain = Impl.do_kv_cache_update
def look(self, layer, key, value, kv_cache, slot_mapping):
    kept.setdefault(layer.layer_name, []).append((slot_mapping.clone(), key.clone(), value.clone()))
    return plain(self, layer, key, value, kv_cache, slot_mapping)
Impl.do_kv_cache_update = look
import builtins
builtins.kept_by_test = kept
"""
# Digests of the prompt's blocks in the common order, made of what the layers were given.
DIGESTS = """
import builtins, hashlib, torch
kept = builtins.kept_by_test
rows = []
for layer in child.core().model_executor.driver_worker.worker.model_runner.attn_groups[0][0].layer_names:
    seen = [entry for entry in kept[layer] if entry[1].shape[0] >= TOKENS][0]
    rows.append(torch.stack([seen[1][:TOKENS], seen[2][:TOKENS]]).view(2, TOKENS // 32, 32, *seen[1].shape[1:]))
whole = torch.stack(rows).permute(2, 0, 1, 3, 4, 5).contiguous()  # [block][layer][K, V][token][head][dim]
result = [hashlib.sha256(block.view(torch.uint8).numpy().tobytes()).hexdigest() for block in whole]
"""


def name_of(model: Path) -> str:
    """Returns the name that both sides use: their weights, and a word of the operator's."""
    return f"{model} as it is"


def connector(disk: Path, model: Path, **more: Any) -> dict[str, Any]:
    extra = {"settings": {"host.capacity": "64MiB"}, "disk": str(disk), "disk_capacity": "1GiB", "identity": "tokens",
             "model": name_of(model), **more}
    return {"kv_transfer_config": {
        "kv_connector": "KvbmConnector", "kv_connector_module_path": "libkvbm.vllm.connector", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra}}


def aibrix(disk: Path, do: str, model: str, **more: Any) -> Any:
    """Returns digests of the prompt's blocks that AIBrix's own manager has, or puts."""
    config = json.loads((disk.parent / "config.json").read_text())
    job = {"do": do, "tokens": TOKENS[:BLOCK * BLOCKS], "block": BLOCK, "layers": config["num_hidden_layers"],
           "heads": config["num_key_value_heads"], "dim": config["hidden_size"] // config["num_attention_heads"], "place": str(disk.parent / "blocks")}
    given = {"L2_CACHE_BACKEND": "KVBM", "KVBM_MODEL": model, "KVBM_HOST_CAPACITY": "64MiB", "KVBM_WEIGH": "0", "KVBM_DISK": str(disk),
             "KVBM_DISK_CAPACITY": "1GiB", "KVBM_IDENTITY": "tokens", "L1_CACHE_ENABLED": 0,
             "L2_CACHE_PER_TOKEN_TIMEOUT_MS": 200, **more}
    ran = subprocess.run([sys.executable, str(HERE / "aibrix_child.py"), json.dumps(job)], capture_output=True, text=True,
                         timeout=240, env={**os.environ, **{f"AIBRIX_KV_CACHE_OL_{k}": str(v) for k, v in given.items()}})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def near(one: Output, other: Output) -> bool:
    return one.agrees(other, NOISE)


class Story:
    def __init__(self, model: Path, place: Path) -> None:
        self.model, self.place, self.disk = model, place, place / "disk"
        (place / "config.json").write_text((model / "config.json").read_text())
        with Engine(model, connector(self.disk, model)) as engine:
            engine.run(KEPT)
            self.computed = engine.generate([TOKENS], logprobs=0)[0]
            self.digests = engine.run(f"TOKENS = {BLOCK * BLOCKS}\n{DIGESTS}")
            engine.reset()
            self.again = engine.generate([TOKENS], logprobs=0)[0]
            self.kv = engine.kv()
            self.salted = engine.generate([TOKENS, TOKENS], salt="other")[0]


@pytest.fixture(scope="module")
def story(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    yield Story(smollm2, tmp_path_factory.mktemp("aibrix"))


def test_the_connector_finds_its_own_blocks_by_their_tokens(story: Story) -> None:
    assert (story.computed.cached, story.again.cached, story.salted.cached) == (0, BLOCK * BLOCKS, 0)
    assert near(story.again, story.computed)


def test_aibrix_gets_the_kv_that_vllm_has_computed(story: Story) -> None:
    found = aibrix(story.disk, "get", name_of(story.model))
    assert found["blocks"] == BLOCKS
    assert found["digests"] == story.digests
    assert aibrix(story.disk, "get", f"{story.model} in another way")["blocks"] == 0
    assert aibrix(story.disk, "get", name_of(story.model), KVBM_IDENTITY="aibrix")["blocks"] == 0


def test_vllm_goes_on_from_what_aibrix_has_put(story: Story, tmp_path: Path) -> None:
    """Its blocks are put by AIBrix into an empty place, and vLLM finds them there."""
    (tmp_path / "config.json").write_text((story.place / "config.json").read_text())
    aibrix(story.disk, "dump", name_of(story.model))
    os.rename(story.place / "blocks", tmp_path / "blocks")
    assert aibrix(tmp_path / "disk", "put", name_of(story.model))["blocks"] == BLOCKS
    with Engine(story.model, connector(tmp_path / "disk", story.model)) as engine:
        loaded = engine.generate([TOKENS], logprobs=0)[0]
        assert loaded.cached == BLOCK * BLOCKS and near(loaded, story.computed)
        again = engine.kv()
        assert len(set(again) & set(story.kv)) >= BLOCKS
        assert all(again[name] == digest for name, digest in story.kv.items() if name in again)
