"""A model with sliding-window and full attention: a prompt comes back with all its groups of layers, or not at all."""
from __future__ import annotations

from pathlib import Path

from connector.support import count, prompt, same, transfer
from engine import RANDOM, Engine, tiny_model

MIXED = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 64,
         "layer_types": ["sliding_attention", "full_attention"] * 2, "hidden_activation": "gelu_pytorch_tanh",
         "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 32, "rms_norm_eps": 1e-6}
GROUPS = ("result = [type(group.kv_cache_spec).__name__ for group in "
          "child.core().scheduler.kv_cache_manager.kv_cache_config.kv_cache_groups]")
FORGET = """
from libkvbm.vllm.connector import engines
for workers in engines._workers.values():
    for worker in workers:
        worker.tiers.spaces[{group}].reset()
"""


def test_groups_come_back_together_or_not_at_all(tmp_path: Path) -> None:
    tokens = prompt(330, 5)
    with Engine(tiny_model(tmp_path / "mixed", **MIXED), {**RANDOM, **transfer()}) as engine:
        assert sorted(engine.run(GROUPS)) == ["FullAttentionSpec", "SlidingWindowSpec"]
        first = engine.generate([tokens], logprobs=0)[0]
        assert engine.reset()
        again = engine.generate([tokens], logprobs=0)[0]
        assert (first.cached, again.cached) == (0, 320)
        same(first, again)
        for group in (0, 1):
            engine.run(FORGET.format(group=group))
            assert engine.reset()
            alone = engine.generate([tokens], logprobs=0)[0]
            assert alone.cached == 0, f"group {1 - group} was loaded without group {group}"
            same(first, alone)
        engine.generate([prompt(40)])
        # Ten blocks of the full layers, and the two of the window that are still needed.
        assert count(engine, "loaded_blocks") == 12 and count(engine, "load_failures") == 0
