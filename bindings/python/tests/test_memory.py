"""Memory arguments: used in place, kept alive while in use, and refused if unsuitable."""
from __future__ import annotations

import array
import gc
import mmap
import sys
from typing import Any

import numpy as np
import pytest

import libkvbm

BLOCK = 4096


class OnlyDlpack:
    """A tensor that speaks DLPack and not the buffer protocol, as torch's do."""

    def __init__(self, data: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.data, self.device = data, device
        self.shape, self.dtype = data.shape, data.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self) -> Any:
        return self.data.__dlpack__()


def attach(manager: libkvbm.Manager, ns: libkvbm.Namespace, tensor: Any) -> libkvbm.Cache:
    return libkvbm.Cache(manager, ns, 8, tensors=[tensor])


def tensors() -> list[Any]:
    return [bytearray(8 * BLOCK), np.zeros((8, BLOCK), np.uint8), np.zeros((8, BLOCK // 2), np.float16),
            mmap.mmap(-1, 8 * BLOCK), array.array("d", bytes(8 * BLOCK)), memoryview(bytearray(9 * BLOCK))[BLOCK:],
            OnlyDlpack(np.zeros((8, BLOCK // 4), np.float32))]


@pytest.mark.parametrize("tensor", tensors(), ids=lambda tensor: type(tensor).__name__)
def test_a_tensor_is_used_in_place(manager: libkvbm.Manager, ns: libkvbm.Namespace, tensor: Any) -> None:
    data = memoryview(tensor.data if isinstance(tensor, OnlyDlpack) else tensor).cast("B")
    keys = libkvbm.Keys.chain(ns, range(8), 1)
    with attach(manager, ns, tensor) as cache:
        data[:] = bytes(i // BLOCK + 1 for i in range(8 * BLOCK))
        cache.store(keys, range(8))
        data[:] = bytes(8 * BLOCK)
        with cache.lookup(keys) as match:
            cache.load(match, range(7, -1, -1))
    assert bytes(data[::BLOCK]) == bytes(range(8, 0, -1))
    data.release()


@pytest.mark.parametrize("tensor", [
    bytes(8 * BLOCK), np.zeros((8, 2 * BLOCK), np.uint8)[:, ::2], memoryview(bytearray(8 * BLOCK)).toreadonly(),
    OnlyDlpack(np.zeros((8, 2 * BLOCK), np.uint8)[:, ::2]), np.zeros((BLOCK, 8), np.uint8).T,
], ids=str)
def test_a_read_only_or_strided_tensor_is_refused(manager: libkvbm.Manager, ns: libkvbm.Namespace, tensor: Any) -> None:
    with pytest.raises(BufferError):
        attach(manager, ns, tensor)


@pytest.mark.parametrize("tensor", ["text", 5, None, [1, 2], object()], ids=str)
def test_what_is_no_buffer_is_a_type_error(manager: libkvbm.Manager, ns: libkvbm.Namespace, tensor: Any) -> None:
    with pytest.raises(TypeError):
        attach(manager, ns, tensor)


def test_memory_of_a_device_is_unavailable(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with pytest.raises(libkvbm.UnavailableError, match="device"):
        attach(manager, ns, OnlyDlpack(np.zeros((8, BLOCK), np.uint8), (2, 0)))


def test_a_tensor_that_is_too_small_is_the_callers_error(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with pytest.raises(libkvbm.CallerError):
        libkvbm.Cache(manager, ns, 8, tensors=[libkvbm.Tensor(bytearray(BLOCK), page_bytes=BLOCK)])
    with pytest.raises(libkvbm.CallerError):
        libkvbm.Cache(manager, ns, 8, tensors=[])
    with pytest.raises(libkvbm.CallerError):
        libkvbm.Cache(manager, ns, 0, tensors=[bytearray(BLOCK)])
    with pytest.raises(TypeError):
        libkvbm.Cache(manager, ns, 8)


def test_a_tensor_is_kept_until_the_cache_is_closed(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    kv = bytearray(8 * BLOCK)
    cache = attach(manager, ns, kv)
    with pytest.raises(BufferError):
        kv.append(1)
    cache.close()
    kv.append(1)
    tensor = np.zeros((8, BLOCK), np.uint8)
    before = sys.getrefcount(tensor)
    cache = attach(manager, ns, tensor)
    assert sys.getrefcount(tensor) == before + 1
    del cache
    assert sys.getrefcount(tensor) == before


def test_a_dlpack_tensor_is_given_back(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    tensor = np.zeros((8, BLOCK), np.uint8)
    before = sys.getrefcount(tensor)
    cache = attach(manager, ns, OnlyDlpack(tensor))
    assert sys.getrefcount(tensor) > before
    del cache
    gc.collect()
    assert sys.getrefcount(tensor) == before


@pytest.mark.parametrize("ids", [
    [0, 1], (0, 1), range(2), array.array("I", [0, 1]), array.array("i", [0, 1]), np.array([0, 1], np.int32),
    np.array([0, 1], np.uint32), OnlyDlpack(np.array([0, 1], np.int32)), iter([0, 1]),
    np.array([0, 1], np.int32).data, np.array([0, 1]), OnlyDlpack(np.array([0, 1])),
], ids=lambda ids: type(ids).__name__)
def test_block_ids_may_be_lists_and_buffers(manager: libkvbm.Manager, ns: libkvbm.Namespace, ids: Any) -> None:
    with attach(manager, ns, bytearray(8 * BLOCK)) as cache:
        outcome = cache.store(libkvbm.Keys.chain(ns, range(2), 1), ids)
        assert outcome.status == libkvbm.Status.OK and list(outcome.item_status) == [0, 0]


@pytest.mark.parametrize("ids", [
    np.array([0.0, 1.0], np.float32), b"\0" * 8, "01", 5, None, [0, "x"], [0, 1.5],
    OnlyDlpack(np.array([0, 1], np.float32)), OnlyDlpack(np.array([0, 1], np.int8)),
], ids=str)
def test_block_ids_of_another_type_are_refused(manager: libkvbm.Manager, ns: libkvbm.Namespace, ids: Any) -> None:
    with attach(manager, ns, bytearray(8 * BLOCK)) as cache:
        with pytest.raises(TypeError):
            cache.store(libkvbm.Keys.chain(ns, range(2), 1), ids)


@pytest.mark.parametrize("ids", [[0], [0, 1, 2], [], [0, 8], [0, 2**32 - 2], np.zeros(4, np.int32)[::2]], ids=str)
def test_block_ids_that_do_not_fit_are_refused(manager: libkvbm.Manager, ns: libkvbm.Namespace, ids: Any) -> None:
    with attach(manager, ns, bytearray(8 * BLOCK)) as cache:
        with pytest.raises((libkvbm.CallerError, BufferError)):
            cache.store(libkvbm.Keys.chain(ns, range(2), 1), ids)
    with pytest.raises(libkvbm.ClosedError):
        cache.store(libkvbm.Keys.chain(ns, range(2), 1), [0, 1])


def test_numbers_that_are_too_large_are_refused(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    for wrong in ([2**32], [-1]):
        with pytest.raises(OverflowError):
            libkvbm.Keys.chain(ns, wrong, 1)
    with pytest.raises((OverflowError, ValueError)):
        libkvbm.Keys.chain(ns, [1], 2**40)
    with pytest.raises(OverflowError):
        manager.flush(-1)
    with pytest.raises((OverflowError, libkvbm.KvbmError, MemoryError)):
        manager.allocate(ns, 2**60)
    with pytest.raises(OverflowError):
        manager.allocate(ns, -1)


def test_positions_and_unit_keys_go_with_the_keys(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    keys = libkvbm.Keys.content(ns, range(8), 4)
    with attach(manager, ns, bytearray(8 * BLOCK)) as cache:
        at = [libkvbm.Position(0), libkvbm.Position(4)]
        cache.store(keys, [0, 1], positions=at)
        with cache.lookup(keys, mode=libkvbm.Lookup.EACH) as match:
            assert cache.load(match, [2, 3], positions=at).status == libkvbm.Status.OK
            wrong = [libkvbm.Position(1), libkvbm.Position(5)]
            with pytest.raises((libkvbm.MissError, AssertionError)):
                assert cache.load(match, [2, 3], positions=wrong).status == libkvbm.Status.OK
            with pytest.raises(ValueError):
                cache.load(match, [2, 3], positions=at[:1])
            with pytest.raises(ValueError):
                cache.load(match, [2, 3, 4])
        with pytest.raises(ValueError):
            cache.store(keys, [0, 1], unit_keys=keys[:1])
        with pytest.raises(ValueError):
            cache.store(keys, [0, 1], parent=bytes(8))


def test_torch_tensors_are_used_in_place(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    kv = torch.zeros((8, BLOCK // 2), dtype=torch.bfloat16)
    keys = libkvbm.Keys.chain(ns, range(2), 1)
    with attach(manager, ns, kv) as cache:
        kv[3] = 2.0
        cache.store(keys, torch.tensor([3, 4], dtype=torch.int32))
        kv[3] = 0.0
        with cache.lookup(keys) as match:
            cache.load(match, [5, 6])
    assert (kv[5] == 2.0).all() and (kv[3] == 0.0).all()
