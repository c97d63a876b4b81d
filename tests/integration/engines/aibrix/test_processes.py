"""What one process stored, in another: same disk, other model, damaged bytes, a shared tier set, an owner that dies."""
from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Callable

import pytest
from serving import TOKENS, Serving, block_spec

N = 24
BYTES = block_spec().block_nbytes


def disk(tmp_path: Path) -> dict[str, object]:
    return {"KVBM_DISK": str(tmp_path / "tier"), "KVBM_DISK_CAPACITY": "256MiB"}


def stored(fresh: Callable[..., Any], tmp_path: Path) -> None:
    assert fresh([["put", N], ["put", N, 1], ["flush"]], **disk(tmp_path)) == [N, N, 0]


def place_of(tmp_path: Path, block: int) -> tuple[Path, int]:
    """Where the bytes of a block of prompt 0 are in the files of the tier."""
    wanted = Serving(None).expected(block, 0, BYTES)
    for file in sorted((tmp_path / "tier").rglob("*")):
        if file.is_file():
            at = file.read_bytes().find(wanted)
            if at >= 0:
                return file, at
    raise AssertionError(f"block {block} is in no file of the tier")


def write(file: Path, at: int, data: bytes) -> None:
    with open(file, "r+b") as stream:
        stream.seek(at)
        stream.write(data)


def test_a_fresh_process_finds_everything_on_the_disk(fresh: Callable[..., Any], tmp_path: Path) -> None:
    stored(fresh, tmp_path)
    results = fresh([["get", N], ["get", N, 1], ["get", N, 2], ["hits"]], **disk(tmp_path))
    assert results[:3] == [["OK", N], ["OK", N], ["NOT_FOUND", 0]]
    assert results[3][1] == 2 * N


@pytest.mark.parametrize("block", [0, 10, N - 1])
def test_a_flipped_byte_on_the_disk_is_a_miss_from_there_on(fresh: Callable[..., Any], tmp_path: Path,
                                                          block: int) -> None:
    stored(fresh, tmp_path)
    file, at = place_of(tmp_path, block)
    write(file, at + 1234, bytes([file.read_bytes()[at + 1234] ^ 1]))
    results = fresh([["get", N], ["get", N, 1]], **disk(tmp_path))  # raises if it says OK to wrong bytes
    assert results == [["OK", block] if block else ["NOT_FOUND", 0], ["OK", N]]


def test_two_blocks_swapped_on_the_disk_are_misses(fresh: Callable[..., Any], tmp_path: Path) -> None:
    stored(fresh, tmp_path)
    (one, at_one), (two, at_two) = place_of(tmp_path, 5), place_of(tmp_path, 9)
    a, b = one.read_bytes()[at_one:at_one + BYTES], two.read_bytes()[at_two:at_two + BYTES]
    assert hashlib.sha256(a).digest() != hashlib.sha256(b).digest()
    write(one, at_one, b)
    write(two, at_two, a)
    assert fresh([["get", N], ["get", N, 1]], **disk(tmp_path)) == [["OK", 5], ["OK", N]]


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
def test_another_model_rank_or_layout_is_a_clean_miss(fresh: Callable[..., Any], tmp_path: Path, spec: Any,
                                                      given: Any) -> None:
    stored(fresh, tmp_path)
    assert fresh([["get", N]], spec=spec, **disk(tmp_path), **given) == [["NOT_FOUND", 0]]
    assert fresh([["get", N]], **disk(tmp_path)) == [["OK", N]]


def test_prefetch_brings_a_prompt_into_host_memory(fresh: Callable[..., Any], tmp_path: Path) -> None:
    stored(fresh, tmp_path)
    results = fresh([["prefetch", N], ["hits"], ["get", N], ["hits"]], **disk(tmp_path))
    assert results[0] == "OK" and results[2] == ["OK", N]
    assert results[3][0] - results[1][0] == N and results[3][1] == results[1][1]


def test_a_host_tier_that_is_too_small_is_continued_on_the_disk(fresh: Callable[..., Any], tmp_path: Path) -> None:
    do = [["put", N, prompt] for prompt in range(12)] + [["flush"]] + [["get", N, prompt] for prompt in range(12)]
    results = fresh(do, KVBM_HOST_CAPACITY="2MiB", **disk(tmp_path))
    assert results[:13] == [N] * 12 + [0]
    assert results[13:] == [["OK", N]] * 12


def test_a_full_disk_keeps_serving(fresh: Callable[..., Any], tmp_path: Path) -> None:
    do = [["put", N, prompt] for prompt in range(40)] + [["flush"]] + [["get", N, prompt] for prompt in range(40)]
    results = fresh(do, KVBM_HOST_CAPACITY="2MiB", KVBM_DISK=str(tmp_path / "tier"), KVBM_DISK_CAPACITY="8MiB")
    assert results[:40] == [N] * 40
    came = [n for _, n in results[41:]]
    assert 0 < sum(came) < 40 * N


@pytest.mark.parametrize("zero_copy", [0, 1])
def test_two_processes_share_one_tier_set_and_one_goes_on_when_the_owner_is_killed(
        start: Callable[..., Any], tmp_path: Path, zero_copy: int) -> None:
    given = {**disk(tmp_path), "KVBM_SHARE": 1, "KVBM_USE_ZERO_COPY": zero_copy}
    owner = start([["put", N], ["flush"], ["role"], ["wait"]], **given)
    owner.read()
    other = start([["role"], ["get", N], ["put", N, 1], ["get", N, 1], ["wait"],
                   ["get", N, 1], ["put", N, 2], ["get", N, 2], ["get", N]], **given)
    first = other.read()
    assert first[1] == ["OK", N] and first[3] == ["OK", N]
    owner.kill()
    other.go_on()
    results = other.read()
    assert other.process.wait(60) == 0
    # What is not found is a miss, and the child raises at a wrong byte.
    assert all(status in ("OK", "NOT_FOUND") for status, _ in (results[4], results[6], results[7]))
    assert results[7] == ["OK", N]
    assert TOKENS == 16
