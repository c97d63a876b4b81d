"""Blocks of a real vLLM are kept by KvbmConnector and found again."""
from __future__ import annotations

import time
from pathlib import Path

import pytest

from connector.support import count, disk, flush, prompt, same, same_kv, transfer
from engine import RANDOM, Engine, EngineError

PAGES = '''
import hashlib
core = child.core()
worker = core.model_executor.driver_worker.worker.model_runner
found = {}
for block in core.scheduler.kv_cache_manager.block_pool.blocks:
    if block.block_hash is not None:
        found[bytes(block.block_hash).hex()] = worker.kv_caches[0][block.block_id].contiguous().view(
            __import__("torch").uint8).numpy().tobytes()[:256].hex()
result = found
'''


def test_a_repeated_prompt_is_loaded_and_not_computed_also_in_a_fresh_process(smollm2: Path, tmp_path: Path) -> None:
    tokens = prompt(330)
    llm = transfer(**disk(tmp_path / "tier"))
    with Engine(smollm2, llm) as engine:
        first = engine.generate([tokens], logprobs=0)[0]
        kv = engine.kv()
        assert first.cached == 0
        assert engine.reset()
        again = engine.generate([tokens], logprobs=0)[0]
        assert again.cached == 320
        same(first, again)
        same_kv(kv, engine.kv(), 10)
        assert count(engine, "loaded_blocks") == 10 and count(engine, "load_failures") == 0
        # With another salt the same tokens are other blocks.
        assert engine.generate([tokens], salt="other")[0].cached == 0
        # A reset that reaches the connector makes them unfindable.
        assert engine.reset(connector=True)
        assert engine.generate([tokens])[0].cached == 0
    with Engine(smollm2, llm) as engine:
        fresh = engine.generate([tokens], logprobs=0)[0]
        assert fresh.cached == 320
        same(first, fresh)
        same_kv(kv, engine.kv(), 10)


def test_prompts_that_are_repeated_at_once_are_found(tiny: Path) -> None:
    with Engine(tiny, {**RANDOM, **transfer()}) as engine:
        # In one call, so that nothing passes between answer and question.
        found = engine.run(f"""
from vllm import SamplingParams
result = []
for i in range(10):
    for _ in range(2):
        tokens = [3 + (t + 13 * i) % 400 for t in {prompt(330)!r}]
        out = llm.generate([{{"prompt_token_ids": tokens}}], SamplingParams(max_tokens=1, temperature=0,
                           detokenize=False), use_tqdm=False)[0]
        result.append(out.num_cached_tokens)
        llm.reset_prefix_cache()
""")
        assert found == [0, 320] * 10


def test_a_damaged_record_is_a_miss_and_so_is_one_in_the_place_of_another(smollm2: Path, tmp_path: Path) -> None:
    one, two, three = prompt(330, 1), prompt(330, 2), prompt(330, 3)
    tier = tmp_path / "tier"
    llm = transfer(**disk(tier))
    with Engine(smollm2, llm) as engine:
        computed = engine.generate([one, two, three], logprobs=0)
        kv, pages = engine.kv(), engine.run(PAGES)
        flush(engine)
    hashes = _by_place(pages, tier)
    places = sorted(hashes)
    assert len(places) == 30, "the records were not found on the disk"
    record = min(b[1] - a[1] for a, b in zip(places, places[1:]) if a[0] == b[0])
    size = record // 4096 * 4096 - 4096  # without what stands around it
    _flip(*places[4])
    _swap(places[11], places[22], size)
    with Engine(smollm2, llm) as engine:
        again = engine.generate([one, two, three], logprobs=0)
        for a, b in zip(computed, again):
            same(a, b)
        # Blocks after the damaged ones (4 of the first prompt's ten, 1 and 2 of the others') are computed in pieces of
        # another size, so their last bits may differ. Loaded blocks are equal.
        same_kv(kv, engine.kv(), 30, recomputed=6 + 9 + 8)
        engine.generate([prompt(40)])  # vLLM's metrics are those up to the step before
        assert count(engine, "load_failures") == 3
        assert engine.said().count("could not be loaded and are computed") == 3


def test_what_would_be_slower_to_load_than_to_compute_is_computed(smollm2: Path, tmp_path: Path) -> None:
    tokens = prompt(330, 7)
    with Engine(smollm2, transfer(**disk(tmp_path / "tier"))) as engine:
        first = engine.generate([tokens], logprobs=0)[0]
        kv = engine.kv()
        flush(engine)
    # Ten blocks at that rate take minutes.
    (tmp_path / "tiers.toml").write_text(f'[[tier]]\npath = "{tmp_path / "tier"}"\ncapacity = "256MiB"\n'
                                         'read_bytes_per_s = "64KiB"\n')
    slow = {"config_file": str(tmp_path / "tiers.toml")}
    with Engine(smollm2, transfer(**slow)) as engine:
        engine.generate([prompt(330, 8)])  # the first thing that it can measure
        began = time.monotonic()
        again = engine.generate([tokens], logprobs=0)[0]
        assert time.monotonic() - began < 20
        same(first, again)
        same_kv(kv, engine.kv(), 10)
        engine.generate([prompt(40)])
        assert count(engine, "left_blocks") > 0 and count(engine, "load_failures") == 0
        started = count(engine, "load_actual_seconds") > 0
        assert started == (count(engine, "load_predicted_seconds") > 0)
        assert started or count(engine, "loads_not_started") > 0
        assert "could not be loaded" not in engine.said()


def _by_place(pages: dict[str, str], tier: Path) -> dict[tuple[Path, int], str]:
    """Where each block's first bytes lie on the disk."""
    found = {}
    for file in sorted(tier.rglob("*")):
        data = file.read_bytes() if file.is_file() else b""
        for name, page in pages.items():
            at = data.find(bytes.fromhex(page))
            if at >= 0:
                found[file, at] = name
    return found


def _flip(file: Path, at: int) -> None:
    with open(file, "r+b") as stream:
        stream.seek(at + 100)
        byte = stream.read(1)
        stream.seek(at + 100)
        stream.write(bytes([byte[0] ^ 1]))


def _swap(a: tuple[Path, int], b: tuple[Path, int], size: int) -> None:
    data = []
    for file, at in (a, b):
        with open(file, "rb") as stream:
            stream.seek(at)
            data.append(stream.read(size))
    assert data[0] != data[1]
    for (file, at), bytes_ in zip((a, b), reversed(data)):
        with open(file, "r+b") as stream:
            stream.seek(at)
            stream.write(bytes_)


def test_preempted_requests_come_back_by_loading(tiny: Path) -> None:
    prompts = [prompt(200, seed) for seed in range(6)]
    with Engine(tiny, {**RANDOM}) as engine:
        expected = engine.generate(prompts, max_tokens=120, logprobs=0)
        kv = engine.kv()
    small = {**RANDOM, "num_gpu_blocks_override": 32, "max_model_len": 512, **transfer()}
    with Engine(tiny, small) as engine:
        got = engine.generate(prompts, max_tokens=120, logprobs=0)
        for a, b in zip(expected, got):
            same(a, b)
        assert engine.metric("vllm:num_preemptions") > 0
        assert count(engine, "loaded_blocks") > 0 and count(engine, "load_failures") == 0
        same_kv(kv, engine.kv(), 1)


def test_the_engine_core_may_be_a_process_of_its_own(smollm2: Path, tmp_path: Path) -> None:
    tokens = prompt(330, 4)
    llm = transfer(**disk(tmp_path / "tier"))
    env = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    with Engine(smollm2, llm, env=env) as engine:
        first = engine.generate([tokens], logprobs=0)[0]
        assert engine.reset()
        again = engine.generate([tokens], logprobs=0)[0]
        assert (first.cached, again.cached) == (0, 320)
        same(first, again)
    with Engine(smollm2, llm, env=env) as engine:
        fresh = engine.generate([tokens], logprobs=0)[0]
        assert fresh.cached == 320
        same(first, fresh)


def test_two_engines_share_one_tier_set(smollm2: Path, tmp_path: Path) -> None:
    tokens, more = prompt(330, 5), prompt(330, 6)
    llm = transfer(**disk(tmp_path / "tier", share=True))
    with Engine(smollm2, llm) as one, Engine(smollm2, llm) as two:
        first = one.generate([tokens], logprobs=0)[0]
        found = two.generate([tokens], logprobs=0)[0]
        assert (first.cached, found.cached) == (0, 320)
        same(first, found)
        same_kv(one.kv(), two.kv(), 10)
        back = two.generate([more], logprobs=0)[0]
        assert one.generate([more], logprobs=0)[0].cached == 320
        one.kill()  # the owner of the tiers
        assert two.reset()
        again = two.generate([more], logprobs=0, timeout_s=120)[0]
        same(back, again)


def test_a_tier_that_cannot_be_opened_refuses_startup_in_one_sentence(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "tier").write_text("a file where a directory should be")
    with pytest.raises(EngineError, match="libkvbm could not be started"):
        Engine(tiny, {**RANDOM, **transfer(**disk(tmp_path / "tier"))})
