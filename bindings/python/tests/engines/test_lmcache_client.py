"""The native L2 client of LMCache: by itself, and behind LMCache's own adapter for native clients."""
from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any, Iterator

import pytest

with warnings.catch_warnings():  # LMCache's dependencies have their own
    warnings.simplefilter("ignore")
    pytest.importorskip("lmcache", reason="LMCache is not installed: docs/engines/lmcache.md says how")
    pytest.importorskip("lmcache.lmcache_native", reason="LMCache's native module is not there: take its wheel")
    from lmcache.v1.distributed.l2_adapters import create_l2_adapter
    from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
    from lmcache_memory import Caller, content, drained, empty, filled, key, layout
    from libkvbm.lmcache import KvbmClient

pytestmark = pytest.mark.filterwarnings("default")

PIECE = 64 << 10
# Keys of these tests are not as LMCache makes them: their hashes have no length.
SMALL = {"block_bytes": PIECE, "weigh": False, "weak_hashes": True, "revision": "1", "settings": {"host.capacity": "32MiB"}}


def made(**params: object) -> Any:
    return KvbmClient(**{**SMALL, **params})


@pytest.fixture
def client() -> Iterator[Any]:
    client = made()
    yield client
    client.close()


def bytes_of(size: int, seed: int) -> bytearray:
    return bytearray(random.Random(seed).randbytes(size))


def put(client: Any, key: str, data: bytearray) -> bool:
    return drained(client, client.submit_batch_set([key], [memoryview(data)]))[0]


def got(client: Any, key: str, size: int) -> bytes | None:
    room = bytearray(size)
    good = drained(client, client.submit_batch_get([key], [memoryview(room)]))[2]
    return bytes(room) if good == [True] else None


@pytest.mark.parametrize("size", [1, PIECE, PIECE + 1, 5 * PIECE - 1])
def test_buffers_come_back_byte_for_byte(client: Any, size: int) -> None:
    assert put(client, "m@01000000@0@ab", bytes_of(size, 1))
    assert got(client, "m@01000000@0@ab", size) == bytes_of(size, 1)


def test_results_are_for_each_key(client: Any) -> None:
    put(client, "m@1@0@aa", bytes_of(100, 1))
    assert drained(client, client.submit_batch_exists(["m@1@0@aa", "m@1@0@bb"])) == (True, "", [True, False])
    rooms = [memoryview(bytearray(100)) for _ in range(2)]
    assert drained(client, client.submit_batch_get(["m@1@0@bb", "m@1@0@aa"], rooms)) == (True, "", [False, True])
    assert bytes(rooms[1]) == bytes_of(100, 1)
    assert drained(client, client.submit_batch_delete(["m@1@0@aa", "m@1@0@bb"])) == (True, "", [True, False])
    assert drained(client, client.submit_batch_exists(["m@1@0@aa"])) == (True, "", [False])


@pytest.mark.parametrize("key", ["", "@", "@@@@", "x" * 100_000, "模型@1@0@ab", "a/b\\c\0d@1@0@ff", "m@zz@0@ab@salt",
                                 "\udcff broken"])
def test_hostile_keys_are_keys_like_others(client: Any, key: str) -> None:
    assert put(client, key, bytes_of(1000, 1))
    assert got(client, key, 1000) == bytes_of(1000, 1)
    assert got(client, key + "x", 1000) is None and got(client, "x" + key, 1000) is None


def test_keys_that_differ_only_in_where_fields_end_are_different(client: Any) -> None:
    put(client, "m@1@0@ab@c", bytes_of(100, 1))
    assert [got(client, other, 100) for other in ("m@1@0@abc", "m@1@0@ab@", "m@1@0ab@c", "m1@0@ab@c")] == [None] * 4


def test_a_room_of_another_size_gets_nothing(client: Any) -> None:
    put(client, "m@1@0@ab", bytes_of(PIECE + 10, 1))
    assert [got(client, "m@1@0@ab", size) for size in (PIECE + 9, PIECE + 11, 10, 3 * PIECE)] == [None] * 4
    assert put(client, "m@1@0@ab", bytes_of(10, 2))  # replaces the other
    assert got(client, "m@1@0@ab", 10) == bytes_of(10, 2) and got(client, "m@1@0@ab", PIECE + 10) is None


def test_empty_batches_and_read_only_buffers(client: Any) -> None:
    assert drained(client, client.submit_batch_set([], [])) == (True, "", [])
    assert drained(client, client.submit_batch_exists([])) == (True, "", [])
    assert drained(client, client.submit_batch_set(["k"], [memoryview(b"only to be read")]))[0]
    assert got(client, "k", 15) == b"only to be read"


def test_an_empty_buffer_is_refused_and_the_others_are_kept(client: Any) -> None:
    ok, error, good = drained(client, client.submit_batch_set(["a", "b"], [memoryview(bytearray()),
                                                                          memoryview(bytes_of(10, 1))]))
    assert not ok and error == "1 of 2 objects were not kept" and good == [False, True]
    assert got(client, "b", 10) == bytes_of(10, 1)


def test_batches_of_unequal_length_are_refused(client: Any) -> None:
    with pytest.raises(ValueError):
        client.submit_batch_get(["a", "b"], [memoryview(bytearray(10))])


def test_sizes_are_found_again_in_a_fresh_client(tmp_path: Path) -> None:
    """Queries of existence have no size, so a client that has seen none looks for every number of pieces."""
    disk = str(tmp_path / "kv")
    client = made(disk=disk)
    for n in range(1, 5):
        assert put(client, f"m@1@0@{n:02x}", bytes_of(n * PIECE - 100, n))
    client.close()
    client = made(disk=disk)
    keys = [f"m@1@0@{n:02x}" for n in range(1, 6)]
    assert drained(client, client.submit_batch_exists(keys))[2] == [True] * 4 + [False]
    assert all(got(client, keys[n - 1], n * PIECE - 100) == bytes_of(n * PIECE - 100, n) for n in range(1, 5))
    client.close()


def test_a_replicated_object_is_written_by_rank_zero_alone() -> None:
    client = made(replicated=True)
    put(client, "m@02010201@0@ab", bytes_of(10, 1))
    assert got(client, "m@02000200@0@ab", 10) is None
    put(client, "m@02000200@0@ab", bytes_of(10, 1))
    assert got(client, "m@02010201@0@ab", 10) == bytes_of(10, 1)
    client.close()


@pytest.mark.parametrize("digest, kept", [("ab" * 32, True), ("ab" * 16, False), ("ab" * 8, False), ("", False)])
def test_weak_hashes_are_refused_unless_accepted(digest: str, kept: bool) -> None:
    client = made(weak_hashes=False)
    assert put(client, f"m@01000000@0@{digest}", bytes_of(100, 1)) == kept
    assert drained(client, client.submit_batch_exists([f"m@01000000@0@{digest}"]))[2] == [kept]
    assert drained(client, client.submit_batch_delete([f"m@01000000@0@{digest}"]))[2] == [kept]
    client.close()


def test_closing_with_work_in_flight_ends_in_order() -> None:
    client, buffers = made(), [bytes_of(PIECE, i) for i in range(50)]
    for i, data in enumerate(buffers):
        client.submit_batch_set([f"m@1@0@{i}"], [memoryview(data)])
        client.submit_batch_get([f"m@1@0@{i}"], [memoryview(bytearray(PIECE))])
    client.close()
    client.close()


def test_behind_lmcaches_own_adapter() -> None:
    config = get_l2_adapter_config_class("native_plugin").from_dict(
        {"type": "native_plugin", "module_path": "libkvbm.lmcache", "class_name": "KvbmClient",
         "adapter_params": SMALL, "max_capacity_gb": 1})
    adapter = create_l2_adapter(config)
    caller, keys = Caller(adapter), [key(i, salt="s") for i in range(4)]
    assert caller.hits(keys, layout(100_000)) == [False] * 4
    assert caller.store(keys, [filled(100_000, i) for i in range(4)]).is_successful()
    assert caller.lookup([*keys, key(9)], layout(100_000)) == [True] * 4 + [False]
    loaded = [empty(100_000) for _ in keys]
    assert caller.load(keys, loaded) == [True] * 4
    assert [content(o) for o in loaded] == [content(filled(100_000, i)) for i in range(4)]
    adapter.delete(keys[:1])
    assert caller.hits(keys, layout(100_000)) == [False, True, True, True]
    adapter.close()
