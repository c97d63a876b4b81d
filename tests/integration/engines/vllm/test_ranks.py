"""Two tensor-parallel workers: a block is there for both or for none."""
from __future__ import annotations

import random
from pathlib import Path

from engine import RANDOM, Engine
from hooks import kv_transfer

TWO = {**RANDOM, "dtype": "float32", "tensor_parallel_size": 2, "distributed_executor_backend": "mp"}


def test_two_workers_find_what_two_workers_stored(tiny: Path, tmp_path: Path) -> None:
    prompt = [random.Random(5).randrange(3, 510) for _ in range(330)]
    llm = TWO | {"kv_transfer_config": kv_transfer("tiering", tmp_path / "disk", pool="16MiB")}
    with Engine(tiny, llm) as engine:
        first = engine.generate([prompt], 16, logprobs=0)[0]
        local = engine.generate([prompt], 16, logprobs=0)[0]
        assert (first.cached, local.cached) == (0, 320)
    with Engine(tiny, llm) as engine:
        again = engine.generate([prompt], 16, logprobs=0)[0]
        assert again.cached == 320 and again.tokens == local.tokens and again.logprobs == local.logprobs
    # One worker has other pages: nothing is found, and nothing goes wrong.
    with Engine(tiny, llm | {"tensor_parallel_size": 1}) as engine:
        assert engine.generate([prompt], 16)[0].cached == 0


def test_the_scheduler_hears_from_all_workers_how_quickly_they_compute(tiny: Path, tmp_path: Path) -> None:
    llm = TWO | {"kv_transfer_config": kv_transfer("tiering", tmp_path / "disk", pool="16MiB", weigh=True)}
    with Engine(tiny, llm) as engine:
        prompt = [random.Random(6).randrange(3, 510) for _ in range(330)]
        engine.generate([prompt], 4)
        (measured,) = engine.run("ours = child.core().scheduler.connector._ours()\n"
                                 "result = [one.speed.block_ns(32) for one in ours]")
        assert measured > 0
        # Tokens are the same whether the prompt is computed or loaded.
        engine.reset()
        again = engine.generate([prompt], 16)[0]
        assert again.tokens == engine.generate([prompt], 16)[0].tokens
