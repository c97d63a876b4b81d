"""The router's index of engines with several cache groups, against what such engines hit."""
from __future__ import annotations

import random
from typing import Any, Optional

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq msgspec")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")

from grouped_engine import Engine, Prompt, Spec, random_engine, random_prompts, told_groups  # noqa: E402

from libkvbm.events import (AllBlocksCleared, Batch, BlockRemoved, BlockStored, Group, Hash, Index,  # noqa: E402
                            Prefix, decode, encode)

MEDIUMS = ("GPU", "CPU")
SEEDS = range(40)


def answer(index: Index, medium: Optional[str], *arguments: Any, **more: Any) -> int:
    return max((one.blocks for one in index.longest_prefix(*arguments, **more) if one.medium == medium), default=0)


def asked(rng: random.Random, prompts: list[Prompt]) -> Prompt:
    """A prompt that was seen, less of it, or more."""
    prompt = rng.choice(prompts)
    hashes = prompt.hashes[:rng.randrange(1, len(prompt.hashes) + 1)] if rng.random() < 0.3 else list(prompt.hashes)
    return Prompt(hashes + [rng.getrandbits(64) for _ in range(rng.randrange(3))], prompt.adapter)


def step(rng: random.Random, engine: Engine, prompts: list[Prompt]) -> list[Any]:
    what = rng.random()
    if what < 0.45:
        return engine.store(rng, rng.choice(MEDIUMS), rng.choice(prompts))
    if what < 0.98:
        return engine.evict(rng, rng.choice(MEDIUMS), rng.randrange(1, 4))
    return engine.reset()


def compare(index: Index, engine: Engine, prompt: Prompt, rng: random.Random, seed: int, **more: Any) -> int:
    tokens = len(prompt.hashes) * engine.hash_size + rng.choice((0, 0, 1, 5))
    limit = min(tokens - 1, len(prompt.hashes) * engine.hash_size)
    hits = 0
    for medium in (None, *MEDIUMS):
        right = engine.hit(prompt.hashes, limit, MEDIUMS if medium is None else (medium,))
        said = answer(index, medium, prompt.hashes, tokens=tokens, block_size=engine.hash_size, eagle=engine.eagle,
                      lora=prompt.adapter, **more)
        assert said * engine.hash_size == right, (seed, medium, engine.specs)
        hits += right > 0
    assert said == answer(index, medium, prompt.hashes, tokens=tokens, block_size=engine.hash_size, eagle=engine.eagle,
                          **more), seed  # of whichever adapter
    other = "c" if prompt.adapter is None else None
    assert not index.longest_prefix(prompt.hashes, lora=other, block_size=engine.hash_size, **more), seed
    return hits


@pytest.mark.parametrize("eagle", [False, True])
def test_the_index_answers_what_an_engine_of_several_groups_would_hit(eagle: bool) -> None:
    hits = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        engine, index = random_engine(rng, eagle=eagle), Index()
        prompts = random_prompts(rng, 6, 60)
        for _ in range(40):
            # In the form from the wire.
            batch = decode(encode(Batch(1.0, step(rng, engine, prompts)), encoding=rng.choice(("map", "array")))).batch
            assert batch is not None
            index.apply("engine", batch.events)
            hits += compare(index, engine, asked(rng, prompts), rng, seed)
            assert len(index) == len(set().union(*engine.pools.values())), seed
        index.apply("engine", engine.reset())
        assert len(index) == 0 and index.sources() == {}
    assert hits > 4 * len(SEEDS)


def test_chunks_are_what_the_router_says_and_without_it_every_block_is_needed() -> None:
    hits = 0
    for seed in SEEDS[:30]:
        rng = random.Random(seed)
        engine, index = random_engine(rng, chunked=True), Index()
        prompts = random_prompts(rng, 6, 60)
        for _ in range(40):
            index.apply("engine", step(rng, engine, prompts))
            prompt = asked(rng, prompts)
            hits += compare(index, engine, prompt, rng, seed, groups=told_groups(engine))
            length = len(prompt.hashes) * engine.hash_size
            assert answer(index, None, prompt.hashes, block_size=engine.hash_size) * engine.hash_size <= engine.hit(
                prompt.hashes, length, MEDIUMS), seed
    assert hits > 4 * 30


def test_many_engines_of_many_models_do_not_disturb_each_other() -> None:
    rng = random.Random(11)
    index = Index()
    engines = {f"engine {i}": random_engine(rng) for i in range(8)}
    prompts = random_prompts(rng, 6, 60)
    for _ in range(400):
        name = rng.choice(sorted(engines))
        index.apply(name, step(rng, engines[name], prompts))
        prompt = asked(rng, prompts)
        for other, engine in engines.items():
            found = index.longest_prefix(prompt.hashes, block_size=engine.hash_size)
            said = max((one.blocks for one in found if one.source == other and one.medium is None), default=0)
            length = len(prompt.hashes) * engine.hash_size
            assert said * engine.hash_size == engine.hit(prompt.hashes, length, MEDIUMS)


# ---- one rule at a time


H: list[Hash] = list(range(100, 108))


def window(hashes: list[Hash], window: Optional[int] = 33, group: int = 0, **more: Any) -> BlockStored:
    return BlockStored(hashes, None, [], 16, group_idx=group, kv_cache_spec_kind="sliding_window",
                       kv_cache_spec_sliding_window=window, **more)


def full(hashes: list[Hash], group: int = 1, **more: Any) -> BlockStored:
    return BlockStored(hashes, None, [], 16, group_idx=group, kv_cache_spec_kind="full_attention", **more)


def state(hashes: list[Hash], group: int = 2) -> BlockStored:
    return BlockStored(hashes, None, [], 16, group_idx=group, kv_cache_spec_kind="mamba")


def blocks(index: Index, *arguments: Any, **more: Any) -> int:
    return answer(index, None, *(arguments or (H,)), **more)


def test_a_window_needs_its_last_blocks_and_a_state_the_last_alone() -> None:
    index = Index()
    index.apply("a", [full(H), window(H[4:6]), state(H[5:6])])
    assert index.longest_prefix(H) == [Prefix("a", None, 6), Prefix("a", "GPU", 6)]
    index.apply("a", [BlockRemoved(H[4:5], group_idx=0)])
    assert blocks(index) == 0 and blocks(index, H, 1) == 8 and blocks(index, H, 2) == 6
    index.apply("a", [window(H[:2]), state(H[1:2])])
    assert blocks(index) == 2
    index.apply("a", [BlockRemoved(H[:1], group_idx=1)])
    assert blocks(index) == 0


@pytest.mark.parametrize("tokens, needed", [(1, 1), (2, 1), (17, 1), (18, 2), (33, 2), (34, 3)])
def test_the_next_token_is_in_its_window_as_well(tokens: int, needed: int) -> None:
    for n in range(5):
        index = Index()
        index.apply("a", [full(H), window(H[8 - n:], tokens)])
        assert blocks(index) == (8 if n >= needed else 0)


def test_windows_and_states_alone_are_no_prefix_unless_the_model_has_nothing_else() -> None:
    index = Index()
    index.apply("a", [window(H)])
    assert index.longest_prefix(H) == []
    assert blocks(index, groups={0: Group("sliding_window", 16, 33)}) == 8
    index.apply("a", [BlockRemoved(H[:6], group_idx=0)])
    assert blocks(index, groups={0: Group("sliding_window")}) == 8
    assert blocks(index, groups={0: Group("sliding_window"), 1: Group()}) == 0


def test_events_without_a_group_are_one_group_of_full_attention() -> None:
    index = Index()
    index.apply("a", [BlockStored(H, None, [], 16)])
    assert blocks(index) == 8
    index.apply("a", [BlockRemoved(H[3:4], None, 1)])
    assert blocks(index) == 8
    index.apply("a", [BlockRemoved(H[3:4], None, None)])
    assert blocks(index) == 3
    # Where the groups are known and a removal names none, none of them is promised to have it.
    index.apply("b", [full(H, 0), full(H, 1), BlockRemoved(H[2:3])])
    index.clear("a")
    assert blocks(index) == blocks(index, H, 0) == blocks(index, H, 1) == 2


@pytest.mark.parametrize("kind", ["unknown", "cross_attention", "of a later version", None])
def test_of_a_kind_that_is_not_known_every_block_is_needed(kind: Optional[str]) -> None:
    index = Index()
    index.apply("a", [full(H), BlockStored(H[1:], None, [], 16, group_idx=0, kv_cache_spec_kind=kind)])
    assert index.longest_prefix(H) == []
    index.apply("a", [BlockStored(H[:1], None, [], 16, group_idx=0, kv_cache_spec_kind=kind)])
    assert blocks(index) == 8


def test_a_window_of_no_size_needs_every_block() -> None:
    index = Index()
    index.apply("a", [full(H), window(H[1:], None)])
    assert blocks(index) == 0
    index.apply("a", [window([H[0]], None)])
    assert blocks(index) == 8
    index.apply("a", [BlockRemoved(H[:4], group_idx=0), window([], 33)])
    assert blocks(index) == 8


def test_a_kind_that_is_told_later_counts_for_the_blocks_before() -> None:
    index = Index()
    index.apply("a", [full(H), BlockStored(H[6:], None, [], 0, group_idx=0)])
    assert blocks(index) == 0
    index.apply("a", [window([])])
    assert blocks(index) == 8
    assert index.groups("a") == {1: [("full", 16, 0)], 0: [("unknown", 0, 0), ("window", 16, 33)]}


def test_one_hash_of_two_block_sizes_is_two_entries() -> None:
    index = Index()
    wide: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "mla_attention"}
    narrow: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "sliding_window_mla",
                              "kv_cache_spec_sliding_window": 8}
    hashes: list[Hash] = list(range(128))  # of 4 tokens each
    index.apply("d", [BlockStored([63, 127], None, [], 256, **wide), BlockStored([126, 127], None, [], 4, **narrow)])
    assert len(index) == 4 and blocks(index, hashes, block_size=4) == 128 == blocks(index, hashes)
    index.apply("d", [BlockStored([127], None, [], 256, medium="CPU", **wide)])
    index.apply("d", [BlockRemoved([127], "GPU", 0)])
    assert len(index) == 3 and index.mediums("d", 127) == {"CPU"} and blocks(index, hashes) == 0
    index.apply("d", [BlockRemoved([127], "CPU", 0)])
    assert len(index) == 2 and index.mediums("d", 127) == set()


def test_blocks_of_several_sizes_make_a_prefix_together() -> None:
    # An offload that tells in smaller blocks than the engine's own (vLLM's self-describing events).
    index = Index()
    kind: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    index.apply("a", [BlockStored([3, 7], None, [], 64, **kind),
                      BlockStored([8, 9, 10, 11], None, [], 16, medium="CPU", **kind)])
    assert index.longest_prefix(list(range(16))) == [Prefix("a", None, 12), Prefix("a", "GPU", 8)]


def test_hits_end_where_blocks_of_all_groups_end() -> None:
    index = Index()
    hashes: list[Hash] = list(range(12))  # of 16 tokens each
    index.apply("a", [BlockStored(hashes[:11], None, [], 16, group_idx=0, kv_cache_spec_kind="full_attention"),
                      BlockStored([2, 5, 8, 11], None, [], 48, group_idx=1, kv_cache_spec_kind="mamba")])
    assert blocks(index, hashes) == 9 and blocks(index, hashes, 0) == 11
    with pytest.raises(ValueError):
        index.longest_prefix(hashes, block_size=0)
    assert blocks(index, hashes, block_size=32) == 0  # no block of 48 tokens ends where such hashes do


def test_full_groups_of_sizes_that_do_not_divide_each_other_agree_where_both_end() -> None:
    index = Index()
    hashes: list[Hash] = list(range(12))
    for names, size, group in (([1, 3, 5, 7], 32, 0), ([2, 5, 8, 11], 48, 1)):
        index.apply("a", [BlockStored(list(names), None, [], size, group_idx=group)])
    assert blocks(index, hashes) == 6
    index.apply("a", [BlockRemoved([5], None, 0)])
    assert blocks(index, hashes) == 0 and blocks(index, hashes, 0) == 4


def test_a_draft_looks_at_the_block_behind_each_length_that_is_tried() -> None:
    index = Index()
    index.apply("a", [full(H, 2), window([H[3], *H[5:7]], 2), state([H[3]], 1)])
    assert blocks(index) == 4 and blocks(index, eagle=[0]) == 0
    engine = Engine([Spec("sliding_window", 16, 2), Spec("mamba", 16), Spec("full_attention", 16)], 16, frozenset((0,)))
    engine.pools["GPU"] = {(0, 103), (0, 105), (0, 106), (1, 103), *((2, name) for name in range(100, 108))}
    assert engine.hit(range(100, 108), 128, ["GPU"]) == 0
    index.apply("a", [window([H[4]], 2)])
    assert blocks(index, eagle=[0]) == 4
    assert blocks(index, H[:4], eagle=[0]) == 0  # the block behind is not of the prompt


def test_the_last_token_is_always_computed() -> None:
    index = Index()
    index.apply("a", [full(H, 0)])
    for tokens, hit in ((-5, 0), (0, 0), (1, 0), (16, 0), (17, 1), (128, 7), (129, 8), (1 << 70, 8)):
        assert blocks(index, tokens=tokens) == hit


def test_adapters_under_one_hash_do_not_answer_for_each_other() -> None:
    index = Index()
    index.apply("a", [full(H, 0), full(H[:5], 0, lora_id=1, lora_name="x"), full(H[5:], 0, lora_id=2, lora_name="y"),
                      full(H[:2], 0, lora_id=2, lora_name="y"), full(H[:3], 0, lora_id=7, medium="CPU")])
    assert len(index) == 8 + 5 + 5 + 3
    assert index.longest_prefix(H) == [
        Prefix("a", None, 8), Prefix("a", "GPU", 8), Prefix("a", None, 5, "x"), Prefix("a", "GPU", 5, "x"),
        Prefix("a", None, 3, 7), Prefix("a", "CPU", 3, 7), Prefix("a", None, 2, "y"), Prefix("a", "GPU", 2, "y")]
    assert index.longest_prefix(H, lora="y") == [Prefix("a", None, 2, "y"), Prefix("a", "GPU", 2, "y")]
    assert index.longest_prefix(H, lora=None)[0].blocks == 8 and index.longest_prefix(H, lora="z") == []
    assert blocks(index, lora=7) == 3 and blocks(index, lora=1) == 0
    index.apply("a", [BlockRemoved(H[1:2], "GPU", 0)])
    assert [(one.blocks, one.lora) for one in index.longest_prefix(H) if one.medium is None] == [
        (3, 7), (1, None), (1, "x"), (1, "y")]
    index.apply("a", [AllBlocksCleared()])
    assert len(index) == 0


def test_what_is_needed_of_groups_stays_when_their_blocks_go_and_goes_with_the_source() -> None:
    index = Index()
    index.apply("a", [full(H), window(H), AllBlocksCleared(), full(H)])
    assert blocks(index) == 0 and index.sources() == {"a": 8}
    index.clear("a")
    index.apply("a", [full(H)])
    assert blocks(index) == 8


# ---- bounds


def test_the_index_keeps_its_bounds_and_counts_what_it_does_not_take() -> None:
    index = Index(limit=1000)
    for group in range(200):
        index.apply("a", [full([1], group)])
    assert index.sources() == {"a": 64} and index.ignored == 136
    for size in range(1, 20):
        index.apply("b", [BlockStored([1, 2], None, [], size)])
    assert index.sources()["b"] == 16 and index.ignored == 136 + 22
    for adapter in range(40):
        index.apply("c", [BlockStored([1], None, [], 16, lora_id=adapter)])
    assert index.sources()["c"] == 16 and index.ignored == 136 + 22 + 24
    for medium in range(40):
        index.apply("d", [BlockStored([1], None, [], 16, medium=str(medium))])
    assert len(index.mediums("d", 1)) == 31 and index.ignored == 136 + 22 + 24 + 9
    index.apply("e", [BlockStored(list(range(2000)), None, [], 16)])
    assert len(index) == 1000 and index.forgotten == 2000 + 64 + 16 + 16 + 1 - 1000
    for name in "abcde":
        index.apply(name, [AllBlocksCleared()])
    assert len(index) == 0 and index.sources() == {}


def test_adapters_that_go_make_room_for_others() -> None:
    index = Index(limit=100)
    index._variants.LIMIT = 50
    for adapter in range(500):
        index.apply("a", [BlockStored([adapter], None, [], 16, lora_name=f"adapter {adapter}")])
        if adapter % 2:
            index.apply("a", [BlockRemoved([adapter, adapter - 1])])
    assert index.ignored == 0 and len(index) == 0 and len(index._variants) == 0 and len(index._variants.of) <= 3
    index.apply("a", [BlockStored([adapter], None, [], 16, lora_id=adapter) for adapter in range(60)])
    assert index.ignored == 10 and len(index) == 50
    index.apply("a", [BlockStored([1], None, [], 16)])
    assert index.ignored == 11
    index.clear("a")
    index.apply("a", [BlockStored([1], None, [], 16)])
    assert len(index) == 1


def test_a_source_without_blocks_makes_room_for_the_next() -> None:
    index = Index()
    index.MAX_SOURCES = 3
    for name in "abcd":
        index.apply(name, [full(H)])
    assert set(index.sources()) == {"a", "b", "c"} and index.ignored == 8
    index.apply("b", [AllBlocksCleared()])
    index.apply("d", [full(H)])
    assert set(index.sources()) == {"a", "c", "d"} and index.groups("b") == {}


def test_the_oldest_of_the_largest_goes_first_with_all_its_variants() -> None:
    index = Index(limit=6)
    index.apply("a", [BlockStored([1], None, [], size) for size in (16, 32, 64)])
    index.apply("a", [BlockStored([2, 3], None, [], 16), BlockStored([1], None, [], 16)])
    index.apply("b", [BlockStored([9], None, [], 16), BlockStored([8], None, [], 16)])
    assert index.sources() == {"a": 4, "b": 2} and index.forgotten == 1
    index.apply("b", [BlockStored([7], None, [], 16)])
    assert index.sources() == {"a": 3, "b": 3} and index.mediums("a", 3) == set() and index.mediums("a", 1) == {"GPU"}


def test_the_simulated_engine_is_no_pushover() -> None:
    """The engine of these tests says what vLLM's own documentation says of its managers."""
    engine = Engine([Spec("sliding_window", 4, 8)], 4)
    engine.pools["GPU"] = {(0, 2), (0, 3), (0, 5)}
    assert engine.hit([0, 1, 2, 3, 4, 5], 24, ["GPU"]) == 16
    chunks = Engine([Spec("chunked_local_attention", 4, 8)], 4)
    assert chunks.hit([0, 1, 2, 3], 15, ["GPU"]) == 8 and chunks.hit([0, 1, 2, 3], 16, ["GPU"]) == 16
    chunks.pools["GPU"] = {(0, 2)}
    assert chunks.hit([0, 1, 2, 3], 15, ["GPU"]) == 12
