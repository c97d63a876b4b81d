"""Workers of one engine in processes of their own: tensor-parallel ranks."""
from __future__ import annotations

from pathlib import Path

from connector.support import ask, count, disk, prompt, same, transfer
from engine import RANDOM, Engine

TWO = {**RANDOM, "tensor_parallel_size": 2}


def test_two_ranks_keep_their_heads_and_find_them_again(tiny: Path, tmp_path: Path) -> None:
    tokens = prompt(330, 20)
    llm = {**TWO, **transfer(**disk(tmp_path / "tier"))}
    with Engine(tiny, llm) as engine:
        first = engine.generate([tokens], logprobs=0)[0]
        assert engine.reset()
        again = engine.generate([tokens], logprobs=0)[0]
        assert (first.cached, again.cached) == (0, 320)
        same(first, again)
        engine.generate([prompt(40)])
        assert count(engine, "loaded_blocks") == 20 and count(engine, "load_failures") == 0  # ten of each rank


def test_one_rank_computes_and_two_decode(tiny: Path) -> None:
    tokens = prompt(330, 21)
    with Engine(tiny, {**RANDOM, **transfer("kv_producer", cache=False)}) as prefill:
        with Engine(tiny, {**TWO, **transfer("kv_consumer", cache=False)}) as decode:
            _, params = ask(prefill, tokens, 1, {"do_remote_decode": True})
            got, _ = ask(decode, tokens, 8, params)
            decode.generate([prompt(40)])
            came, failed = count(decode, "received_requests"), count(decode, "receive_failures")
            assert (came, failed) == (2, 0), [line for line in decode.said().splitlines() if "Kvbm" in line]
            # Ranks with random weights of their own are another model than one rank: what they were given says nothing
            # of their words. That heads arrive where they belong is tested in bindings/python/tests/engines.
            assert len(got.tokens) == 8
