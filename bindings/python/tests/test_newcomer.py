"""Cases of a first use of the binding: arrays of frameworks, impossible numbers, an empty load, and the repr of
objects."""
from __future__ import annotations

from array import array
from typing import Any

import pytest

import libkvbm
from libkvbm import Op, Status

np = pytest.importorskip("numpy")
N, SIZE = 8, 4096


@pytest.fixture
def kv() -> Any:
    return np.zeros((N, SIZE), np.uint8)


@pytest.fixture
def cache(manager: libkvbm.Manager, ns: libkvbm.Namespace, kv: Any) -> libkvbm.Cache:
    return libkvbm.Cache(manager, ns, N, tensors=kv)


def test_an_array_of_two_dimensions_is_one_tensor(manager: libkvbm.Manager, ns: libkvbm.Namespace, cache: libkvbm.Cache,
                                                   kv: Any) -> None:
    kv[:] = np.arange(N)[:, None]
    keys = libkvbm.Keys.chain(ns, range(4 * N), 4)
    assert cache.store(keys, range(N)).status == Status.OK
    kv[:] = 99
    with cache.lookup(keys) as match:
        assert match.hits == N
        cache.load(match, range(N)[::-1])
    assert (kv[:, 0] == np.arange(N)[::-1]).all()
    with libkvbm.Cache(manager, ns, N, [libkvbm.CachePart(kv)]), libkvbm.Cache(manager, ns, N, tensors=[kv]):
        pass


@pytest.mark.parametrize("data, n", [(bytearray(8 * 4096), 9), (np.zeros((9, 4096), np.uint8), 8),
                                     (np.zeros((4096, 8), np.uint8), 9), (np.zeros(4097, np.uint8), 8)])
def test_a_tensor_that_is_not_so_many_blocks_is_refused(manager: libkvbm.Manager, ns: libkvbm.Namespace, data: Any,
                                                        n: int) -> None:
    with pytest.raises(libkvbm.CallerError, match=r"tensors\[0\] has .* which is not \d blocks of one size"):
        libkvbm.Cache(manager, ns, n, tensors=[data])


def test_references_to_objects_are_no_memory_of_blocks(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    structured = np.zeros(N * 16, dtype=[("O", "u1", 256)])
    with libkvbm.Cache(manager, ns, N, tensors=[structured]):
        pass  # a field that is called O is none
    for wrong in (np.array([None] * 4096, dtype=object), np.zeros(4096, dtype=[("a", "i4"), ("b", object)])):
        with pytest.raises(TypeError, match="Python objects"):
            libkvbm.Cache(manager, ns, N, tensors=[wrong])
        with pytest.raises(TypeError, match="Python objects"):
            libkvbm.codec.inspect(wrong)


def test_an_address_of_a_device_is_none_of_the_host(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    far = libkvbm.DeviceMemory(0x7F0000000000 >> 8, N * SIZE)
    with pytest.raises(libkvbm.CallerError, match="DeviceMemory"):
        libkvbm.Cache(manager, ns, N, tensors=[far], memory=libkvbm.MemoryKind.HOST)
    with pytest.raises(libkvbm.CallerError, match="no memory of this process"):
        libkvbm.Cache(manager, ns, N, tensors=[far])


@pytest.mark.parametrize("kind", ["i2", "u2", "i4", "u4", "i8", "u8"])
def test_token_ids_are_integers_of_any_size(ns: libkvbm.Namespace, kind: str) -> None:
    want = libkvbm.Keys.chain(ns, range(100, 116), 4)
    assert libkvbm.Keys.chain(ns, np.arange(100, 116, dtype=kind), 4) == want
    assert libkvbm.Keys.chain(ns, np.arange(100, 116, dtype=kind)[::1].reshape(4, 4).ravel(), 4) == want


@pytest.mark.parametrize("wrong", [
    [1, 2, -1, 4], np.array([1, 2, -1, 4]), np.array([1, 2, -1, 4], np.int32), np.array([1, 2, -1, 4], np.int16),
    [1, 2, 1 << 32, 4], np.array([1, 2, 1 << 32, 4]), array("q", [1, 2, -1, 4])])
def test_token_ids_out_of_range_are_an_overflow_that_names_the_place(ns: libkvbm.Namespace, wrong: Any) -> None:
    with pytest.raises(OverflowError, match=r"tokens\[2\] is (-1|4294967296), which is not between 0 and 4294967295"):
        libkvbm.Keys.chain(ns, wrong, 4)


def test_no_block_is_a_block_id_and_minus_one_is_none(cache: libkvbm.Cache, ns: libkvbm.Namespace) -> None:
    keys = libkvbm.Keys.chain(ns, range(4), 4)
    assert cache.store(keys, np.array([libkvbm.NO_BLOCK])).status <= Status.PARTIAL
    with pytest.raises(OverflowError, match="block_ids"):
        cache.store(keys, np.array([-1]))


def test_floats_are_no_token_ids(ns: libkvbm.Namespace) -> None:
    wrongs: list[Any] = [np.zeros(4), np.zeros(4, np.float32), [1.5, 2, 3, 4]]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="tokens: expected integers"):
            libkvbm.Keys.chain(ns, wrong, 4)


def test_numbers_that_cannot_be_are_overflows_that_name_the_argument(context: libkvbm.Context, manager: libkvbm.Manager,
                                                                     ns: libkvbm.Namespace, cache: libkvbm.Cache) -> None:
    keys = libkvbm.Keys.chain(ns, range(4), 4)
    for name, call in (("host_capacity_bytes", lambda: libkvbm.Manager(context, host_capacity_bytes=-1)),
                       ("block_bytes", lambda: libkvbm.Manager(context, block_bytes=1 << 64)),
                       ("timeout_ns", lambda: cache.store(keys, [0], timeout_ns=-1)),
                       ("timeout_ns", lambda: manager.flush(-1)),
                       ("n_blocks", lambda: manager.allocate(ns, -1)),
                       ("capacity", lambda: libkvbm.Queue(context, 1).poll(-1)),
                       ("hash_bytes", lambda: libkvbm.Keys.from_hashes(ns, bytes(32), -16)),
                       ("block_tokens", lambda: libkvbm.Keys.chain(ns, range(8), -4)),
                       ("priority", lambda: manager.hint(ns, keys, 1 << 32)),  # type: ignore[arg-type]
                       ("n_blocks", lambda: libkvbm.Cache(manager, ns, -8, tensors=[bytearray(4096)]))):
        with pytest.raises(OverflowError, match=f"^{name}: .* is not between 0 and "):
            call()
    with pytest.raises(TypeError, match="timeout_ns: expected a whole number, got 1.5"):
        manager.flush(1.5)  # type: ignore[arg-type]


def test_a_load_of_nothing_after_a_miss_does_nothing(cache: libkvbm.Cache, ns: libkvbm.Namespace) -> None:
    ids = list(range(N))
    match = cache.lookup(libkvbm.Keys.chain(ns, range(1000, 1008), 4))
    assert cache.load(match, ids[:match.hits]).status == Status.OK
    assert cache.load_future(match, []).result(60).status == Status.OK
    with pytest.raises(libkvbm.CallerError, match="lookup that hit nothing"):
        cache.load(match, [0])
    match.release()
    with pytest.raises(libkvbm.ClosedError):
        cache.load(match, [])


def test_a_refused_argument_is_in_the_exception(cache: libkvbm.Cache, ns: libkvbm.Namespace) -> None:
    keys = libkvbm.Keys.chain(ns, range(8), 4)
    with pytest.raises(libkvbm.CallerError, match=r"block_ids\[1\] is 99, the cache has 8 blocks"):
        cache.store(keys, [0, 99])


def test_statuses_operations_and_tiers_print_as_names(manager: libkvbm.Manager, ns: libkvbm.Namespace,
                                                      cache: libkvbm.Cache) -> None:
    keys = libkvbm.Keys.chain(ns, range(8), 4)
    outcome = cache.store(keys, [0, 1])
    assert repr(outcome) == "Outcome(status=OK, item_status=[OK, OK])" and outcome == outcome
    assert f"{outcome.status} {Op.LOAD}" == "OK LOAD" and outcome.status == 0
    done = cache.store_future(keys, [0, 1]).result(60)
    assert "op=STORE, status=OK" in repr(done) and done.op == Op.STORE
    with manager.lookup(ns, keys) as match:
        assert repr(match.items()[0]).startswith("MatchItem(tier=host,") and match.items()[0].tier == 0
    assert repr(next(manager.scan()).tier) == "host"
    assert repr(libkvbm.TierNumber(libkvbm.NO_TIER)) == "no tier" and repr(libkvbm.TierNumber(2)) == "tier 2"


def test_objects_say_what_they_are(context: libkvbm.Context, manager: libkvbm.Manager, ns: libkvbm.Namespace,
                                   cache: libkvbm.Cache) -> None:
    keys = libkvbm.Keys.chain(ns, range(8), 4)
    match, queue = cache.lookup(keys), libkvbm.Queue(context, 4)
    geometry = libkvbm.Geometry(4, [libkvbm.Component(layers=1, heads=1, head_dim=8)])
    blocks = manager.allocate(ns, 2)
    for item in (context, manager, ns, cache, match, queue, geometry, blocks):
        name = type(item).__name__
        assert repr(item).startswith(f"<libkvbm.{name}") and "closed" not in repr(item), repr(item)
    assert "n_blocks=8" in repr(cache) and "hits=0" in repr(match) and "n=2" in repr(blocks)
    queue.close()
    assert repr(queue).endswith("closed>")


def test_who_has_no_peers_waits_for_none(manager: libkvbm.Manager) -> None:
    manager.wait_for_peers(0)
    manager.wait_for_peers()


def test_a_closed_manager_says_what_futures_lack(manager: libkvbm.Manager, ns: libkvbm.Namespace, cache: libkvbm.Cache,
                                                 context: libkvbm.Context) -> None:
    keys = libkvbm.Keys.chain(ns, range(4), 4)
    manager.close()
    assert cache.store(keys, [0]).status == Status.OK  # the cache keeps what it needs of the manager
    with pytest.raises(libkvbm.ClosedError, match="give the call a queue"):
        cache.store_future(keys, [0])
    with libkvbm.Queue(context, 4) as queue:
        assert cache.store_future(keys, [0], queue=queue).result(60).status == Status.OK


def test_peers_that_are_not_there_are_named_in_time() -> None:
    with libkvbm.Context({"node.peers": "127.0.0.1:1", "node.pool": "test"}) as alone:
        with libkvbm.Manager(alone, block_bytes=4096, host_capacity_bytes=1 << 20) as manager:
            with pytest.raises(TimeoutError, match="127.0.0.1:1"):
                manager.wait_for_peers(timeout=0.05)
