"""One process reads what another stored: same disk, other model, damaged bytes, shared tier set, an owner that dies."""
from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from aibrix_kvcache.memory import ExternalMemoryRegion
from serving import Serving, block_spec, serving

N = 24
BYTES = block_spec().block_nbytes


def disk(place: Path) -> dict[str, object]:
    return {"KVBM_DISK": str(place / "tier"), "KVBM_DISK_CAPACITY": "256MiB"}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory, once: Callable[..., Any]) -> Path:
    """A tier that another process wrote: prompts 0 and 1."""
    place = tmp_path_factory.mktemp("written")
    assert once([["put", N], ["put", N, 1], ["flush"]], **disk(place)) == [N, N, 0]
    return place


@pytest.fixture
def stored(written: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(written / "tier", tmp_path / "tier")
    return tmp_path


def place_of(place: Path, block: int) -> tuple[Path, int]:
    """Where the bytes of a block of prompt 0 are in the files of the tier."""
    wanted = Serving(None).expected(block, 0, BYTES)
    for file in sorted((place / "tier").rglob("*")):
        if file.is_file():
            at = file.read_bytes().find(wanted)
            if at >= 0:
                return file, at
    raise AssertionError(f"block {block} is in no file of the tier")


def write(file: Path, at: int, data: bytes) -> None:
    with open(file, "r+b") as stream:
        stream.seek(at)
        stream.write(data)


def test_a_fresh_process_finds_everything_on_the_disk(stored: Path) -> None:
    with serving(**disk(stored)) as it:
        assert [it.get(N, prompt) for prompt in range(3)] == [("OK", N), ("OK", N), ("NOT_FOUND", 0)]
        assert it.kvbm.stats().tiers[1].hits == 2 * N


@pytest.mark.parametrize("block", [0, 10, N - 1])
def test_a_flipped_byte_on_the_disk_is_a_miss_from_there_on(stored: Path, block: int) -> None:
    file, at = place_of(stored, block)
    write(file, at + 1234, bytes([file.read_bytes()[at + 1234] ^ 1]))
    with serving(**disk(stored)) as it:  # get raises where it says OK to wrong bytes
        assert it.get(N) == (("OK", block) if block else ("NOT_FOUND", 0))
        assert it.get(N, 1) == ("OK", N)


def test_a_damaged_block_is_told_from_its_neighbours_in_another_slab(stored: Path) -> None:
    file, at = place_of(stored, 10)
    write(file, at, bytes([file.read_bytes()[at] ^ 255]))
    slabs = [torch.zeros(N * BYTES, dtype=torch.uint8) for _ in range(2)]
    into = [ExternalMemoryRegion(slabs[i % 2], i // 2 * BYTES, BYTES) for i in range(N)]
    with serving(**disk(stored)) as it:
        it.backend.register_slabs(slabs).raise_if_not_ok()
        found = it.call(it.backend.mget(it.keys(N), into))
        assert [status.is_ok() for status in found] == [True] * 10 + [False] * (N - 10)
        assert all(into[i].tobytes() == it.expected(i, 0, BYTES) for i in range(10))


@pytest.mark.parametrize("zero_copy", [0, 1])
def test_two_blocks_swapped_on_the_disk_are_misses(stored: Path, zero_copy: int) -> None:
    (one, at_one), (two, at_two) = place_of(stored, 5), place_of(stored, 9)
    a, b = one.read_bytes()[at_one:at_one + BYTES], two.read_bytes()[at_two:at_two + BYTES]
    assert hashlib.sha256(a).digest() != hashlib.sha256(b).digest()
    write(one, at_one, b)
    write(two, at_two, a)
    with serving(**disk(stored), KVBM_USE_ZERO_COPY=zero_copy) as it:
        assert it.get(N) == ("OK", 5)
        assert it.get(N, 1) == ("OK", N)


@pytest.mark.parametrize("spec, given", [
    ({}, {"KVBM_MODEL": "llama@2"}),
    ({}, {"L2_CACHE_NAMESPACE": "other"}),
    ({}, {"L2_CACHE_KEY_BUILDER": "RAW"}),
    ({}, {"KVBM_TENANT": "other"}),
    ({"dtype": "float16"}, {}),
    ({"layout": "NCLD"}, {}),
    ({"heads": [2, 3]}, {}),
    ({"layers": [4, 5, 6, 7]}, {}),
    ({"heads": [0], "dim": 64}, {}),
])
def test_another_model_rank_or_layout_is_a_clean_miss(stored: Path, spec: Any, given: Any) -> None:
    with serving(block_spec(**spec), **disk(stored), **given) as it:
        assert it.get(N) == ("NOT_FOUND", 0)
        it.put(2)
    with serving(**disk(stored)) as it:
        assert it.get(N) == ("OK", N)


def test_prefetch_brings_a_prompt_into_host_memory(stored: Path) -> None:
    with serving(**disk(stored)) as it:
        assert it.call(it.manager._l2_cache.prefetch(None, it.tokens(N))).is_ok()
        host, below = it.kvbm.stats().tiers
        assert it.get(N) == ("OK", N)
        assert [tier.hits for tier in it.kvbm.stats().tiers] == [host.hits + N, below.hits]


def test_a_host_tier_that_is_too_small_is_continued_on_the_disk(tmp_path: Path) -> None:
    with serving(KVBM_HOST_CAPACITY="2MiB", **disk(tmp_path)) as it:
        for prompt in range(12):
            assert it.put(N, prompt).is_ok()
            it.kvbm.flush()
        assert [it.get(N, prompt) for prompt in range(12)] == [("OK", N)] * 12


def test_a_full_disk_keeps_serving(tmp_path: Path) -> None:
    prompts = 64  # 96 MiB of blocks, on a disk of 52 MiB
    with serving(block_spec(dim=128), KVBM_HOST_CAPACITY="4MiB", KVBM_DISK=tmp_path / "tier",
                 KVBM_DISK_CAPACITY="52MiB") as it:
        for prompt in range(prompts):
            assert it.put(N, prompt).is_ok()
            it.kvbm.flush()
        assert 0 < sum(it.get(N, prompt)[1] for prompt in range(prompts)) < prompts * N
        assert it.get(N, prompts - 1) == ("OK", N)


@pytest.mark.parametrize("zero_copy", [0, 1])
def test_two_processes_share_a_tier_set_and_one_goes_on_when_the_owner_is_killed(
        start: Callable[..., Any], tmp_path: Path, zero_copy: int) -> None:
    shared = {**disk(tmp_path), "KVBM_SHARE": 1, "KVBM_USE_ZERO_COPY": zero_copy}
    owner = start([["put", N], ["flush"], ["wait"]], **shared)
    owner.read()
    with serving(**shared) as it:
        assert it.get(N) == ("OK", N)
        it.put(N, 1)
        it.manager.flush()
        assert it.get(N, 1) == ("OK", N)
        owner.kill()
        for prompt in (0, 1, 2):  # a lost block is a miss, and get raises at a wrong byte
            assert it.get(N, prompt)[0] in ("OK", "NOT_FOUND", "ERROR", "TIMEOUT")
        assert it.kvbm.flush(30_000_000_000) in (0, 1)  # the next owner is there
        assert it.put(N, 2).is_ok()
        it.manager.flush()
        assert [it.get(N, prompt) for prompt in (0, 2)] == [("OK", N)] * 2


def test_two_tensor_parallel_ranks_agree_on_the_prefix_and_never_get_each_others_heads(
        start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AIBrix's GroupAwareKVCacheManager, one process a rank, on one shared tier set."""
    import torch.distributed as dist
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    shared, meeting = {**disk(tmp_path), "KVBM_SHARE": 1}, str(tmp_path / "meeting")
    other = start([["put", N], ["get", N], ["delete", 6], ["get", N]], spec={"heads": [2, 3]}, seed="rank 1",
                  group=[meeting, 1, 2], **shared)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=2)
    try:
        with serving(block_spec(heads=(0, 1)), "rank 0", dist.group.WORLD, **shared) as it:
            assert it.backend.identity.ranks == 2
            it.put(N)
            assert it.get(N) == ("OK", N)
            assert it.get(N) == ("OK", 6)  # rank 1 has lost its block 6 meanwhile; here it is still there
            assert it.manager.exists(None, it.tokens(N)).get() == N * 16
            assert other.read() == [N, ["OK", N], "OK", ["OK", 6]]
    finally:
        dist.destroy_process_group()
