"""LoRA: what was computed with an adapter comes back for that adapter alone, also where another process counts its
adapters in another order."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from engine import RANDOM, TINY, Engine
from hooks import HOOKS, connector, kv_transfer
from safetensors.torch import save_file

BLOCK, BLOCKS = 32, 6
PROMPT = [(7 * i + i // 5) % 500 + 3 for i in range(BLOCK * BLOCKS + 10)]
RANK = 8
LLM = RANDOM | {"enable_lora": True, "max_loras": 2, "max_lora_rank": RANK}


def adapter(directory: Path, seed: int) -> Path:
    """Makes a LoRA of the tiny model with K and V far from the model's own."""
    directory.mkdir()
    hidden, heads = int(TINY["hidden_size"]), int(TINY["num_key_value_heads"]) * int(TINY["head_dim"])
    (directory / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none",
         "lora_dropout": 0.0, "target_modules": ["k_proj", "v_proj"], "inference_mode": True}))
    drawn = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(int(TINY["num_hidden_layers"])):
        for name in ("k_proj", "v_proj"):
            stem = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{stem}.lora_A.weight"] = torch.randn(RANK, hidden, generator=drawn).to(torch.bfloat16)
            weights[f"{stem}.lora_B.weight"] = torch.randn(heads, RANK, generator=drawn).to(torch.bfloat16)
    save_file(weights, str(directory / "adapter_model.safetensors"))
    return directory


def asked(hook: str, disk: Path) -> dict[str, Any]:
    if hook == "connector":
        return connector(disk=str(disk), disk_capacity="1GiB")
    return kv_transfer(hook, disk)


@pytest.mark.parametrize("hook", [*HOOKS, "connector"])
def test_an_adapter_has_its_own_blocks(hook: str, tiny: Path, tmp_path: Path) -> None:
    names = {name: str(adapter(tmp_path / name, seed)) for seed, name in enumerate(("legal", "medical"), 1)}
    llm = LLM | {"kv_transfer_config": asked(hook, tmp_path / "disk")}
    with Engine(tiny, llm) as engine:
        legal = ("legal", 1, names["legal"])
        first = engine.generate([PROMPT], adapter=legal)[0]
        local = engine.generate([PROMPT], adapter=legal, logprobs=0)[0]
        bytes_of = engine.kv()
        engine.reset()
        # The model itself and another adapter have computed nothing of this prompt.
        bare = engine.generate([PROMPT])[0]
        other = engine.generate([PROMPT], adapter=("medical", 2, names["medical"]))[0]
        assert (first.cached, bare.cached, other.cached) == (0, 0, 0)
        all_bytes = [*bytes_of.values(), *engine.kv().values()]
        assert len(all_bytes) == len(set(all_bytes)) == 3 * BLOCKS  # the adapters do something
        engine.reset()
        again = engine.generate([PROMPT], adapter=legal, logprobs=0)[0]
        assert again.cached == BLOCK * BLOCKS
        assert again.tokens == local.tokens and again.logprobs == local.logprobs
        assert engine.kv() == bytes_of
    with Engine(tiny, llm) as engine:
        # Numbers of adapters are a process's own.
        other = engine.generate([PROMPT], adapter=("medical", 1, names["medical"]))[0]
        again = engine.generate([PROMPT], adapter=("legal", 2, names["legal"]), logprobs=0)[0]
        bare = engine.generate([PROMPT])[0]
        assert (again.cached, other.cached, bare.cached) == (BLOCK * BLOCKS,) * 3
        assert again.tokens == local.tokens and again.logprobs == local.logprobs
        kv = engine.kv()
        assert {name: kv[name] for name in bytes_of} == bytes_of
