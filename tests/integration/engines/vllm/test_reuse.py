"""A prompt that was computed once comes back from libkvbm: in the same process, in a fresh one, and not at all where
its bytes were changed. The model is a real one, and what is compared are KV bytes and log-probabilities."""
from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from engine import Engine, Output
from hooks import HOOKS, kv_transfer
from tokenizers import Tokenizer

BLOCK, BLOCKS = 32, 10
# Ten tokens are left over: they are computed in every run, in the same shape, so that equal KV means equal numbers.
TOKENS = BLOCK * BLOCKS + 10
FLIPPED, SWAPPED = 4, (6, 8)
# Difference between a prompt computed at once and one with a loaded prefix: the order of sums in bfloat16.
NOISE = 0.35
HEADER = Path(__file__).parents[4] / "include" / "kvbm.h"

# Writes the bytes of blocks of a prompt, in the order of vLLM's layers, to files.
DUMP = """
import torch
core = child.core()
manager = core.scheduler.kv_cache_manager
tensors = [t for t in core.model_executor.driver_worker.worker.model_runner.kv_caches]
blocks = {bytes(b.block_hash): b.block_id for b in manager.block_pool.blocks if b.block_hash is not None}
from vllm.v1.core.kv_cache_utils import hash_block_tokens, NONE_HASH
from vllm.utils.hashing import sha256
parent, result = NONE_HASH, []
for i in range(0, len(PROMPT) // 32):
    parent = hash_block_tokens(sha256, parent, PROMPT[i * 32:(i + 1) * 32], None)
    found = [b for h, b in blocks.items() if h.startswith(bytes(parent))]
    data = b"".join(t[found[0]].contiguous().view(torch.uint8).numpy().tobytes() for t in tensors)
    open(f"{PLACE}/{i}", "wb").write(data)
    result.append(len(data))
"""


@pytest.fixture(scope="module")
def prompts(smollm2: Path) -> tuple[list[int], list[int]]:
    """Two prompts of English."""
    ids = Tokenizer.from_file(str(smollm2 / "tokenizer.json")).encode(HEADER.read_text()[:20_000]).ids
    return ids[:TOKENS], ids[1000:1000 + TOKENS]


def dump(engine: Engine, prompt: list[int], place: Path) -> list[bytes]:
    place.mkdir()
    engine.run(f"PROMPT = {prompt!r}\nPLACE = {str(place)!r}\n{DUMP}")
    return [(place / str(i)).read_bytes() for i in range(BLOCKS)]


class Story:
    """Results that one process computed, with which others are compared."""

    def __init__(self, hook: str, model: Path, disk: Path, prompts: tuple[list[int], list[int]], place: Path) -> None:
        self.model, self.disk, self.prompts = model, disk, prompts
        self.llm = {"kv_transfer_config": kv_transfer(hook, disk)}
        with Engine(model, self.llm) as engine:
            self.computed = engine.generate([prompts[0]], logprobs=0)[0]
            self.local = engine.generate([prompts[0]], logprobs=0)[0]
            self.kv = engine.kv()
            engine.reset()
            self.again = engine.generate([prompts[0]], logprobs=0)[0]
            self.kv_again = engine.kv()
            engine.generate([prompts[1]])
            self.second = engine.generate([prompts[1]], logprobs=0)[0]
            self.bytes = [dump(engine, prompt, place / f"{i}") for i, prompt in enumerate(prompts)]
            self.metrics = engine.metrics()


@pytest.fixture(scope="module", params=HOOKS)
def story(request: pytest.FixtureRequest, smollm2: Path, prompts: Any,
          tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    place = tmp_path_factory.mktemp(request.param)
    yield Story(request.param, smollm2, place / "disk", prompts, place)


def near(one: Output, other: Output) -> bool:
    return one.agrees(other, NOISE)


def test_after_a_reset(story: Story) -> None:
    assert (story.computed.cached, story.local.cached, story.again.cached) == (0, BLOCK * BLOCKS, BLOCK * BLOCKS)
    assert story.again.tokens == story.local.tokens and story.again.logprobs == story.local.logprobs
    assert near(story.again, story.computed)
    assert len(story.kv) == BLOCKS and story.kv == story.kv_again
    assert story.metrics["vllm:external_prefix_cache_hits"] == BLOCK * BLOCKS
    assert story.metrics["vllm:kvbm_tier_blocks{tier=host}"] >= BLOCKS


def test_in_a_fresh_process(story: Story) -> None:
    with Engine(story.model, story.llm) as engine:
        output = engine.generate([story.prompts[0]], logprobs=0)[0]
        assert output.cached == BLOCK * BLOCKS
        assert output.tokens == story.local.tokens and output.logprobs == story.local.logprobs
        assert engine.kv() == story.kv
        # Tokens under another salt belong to another tenant.
        assert engine.generate([story.prompts[0]], salt="another")[0].cached == 0


def test_changed_bytes_are_computed(story: Story) -> None:
    flip(story.disk, story.bytes[0][FLIPPED])
    swap(story.disk, *(story.bytes[1][i] for i in SWAPPED))
    with Engine(story.model, story.llm) as engine:
        flipped, swapped = (engine.generate([prompt], logprobs=0)[0] for prompt in story.prompts)
        assert flipped.cached == FLIPPED * BLOCK and near(flipped, story.local)
        assert swapped.cached == SWAPPED[0] * BLOCK and near(swapped, story.second)
        for _ in range(40):  # counters are published once a second, with a step
            engine.generate([[1, 2, 3]])
            if engine.metric("vllm:kvbm_damaged_blocks") >= 2:
                break
            time.sleep(0.1)
        assert engine.metric("vllm:kvbm_damaged_blocks") >= 2
        # Recomputed blocks were stored again, so all hit.
        engine.reset()
        again = engine.generate([story.prompts[0]], logprobs=0)[0]
        assert again.cached == BLOCK * BLOCKS and near(again, story.local)


def places(disk: Path, payload: bytes) -> list[tuple[Path, int]]:
    """Where records with this payload are on disk; the checked parts of one lie one after the other."""
    found = []
    for file in sorted(disk.rglob("*")):
        if file.is_file():
            at = file.read_bytes().find(payload[:4096])
            if at >= 0:
                found.append((file, at))
    assert found, "the block is not on disk"
    return found


def flip(disk: Path, payload: bytes) -> None:
    for file, at in places(disk, payload):
        with open(file, "r+b") as stream:
            stream.seek(at + 2000)
            byte = stream.read(1)[0]
            stream.seek(at + 2000)
            stream.write(bytes([byte ^ 4]))


def swap(disk: Path, one: bytes, other: bytes) -> None:
    targets = [(places(disk, one), one, other), (places(disk, other), other, one)]
    for found, payload, instead in targets:
        for file, at in found:
            with open(file, "r+b") as stream:
                stream.seek(at)
                assert stream.read(len(payload)) == payload
                stream.seek(at)
                stream.write(instead)
