"""Views of blocks: no copy, no dangling memory, no writes to registered blocks."""
from __future__ import annotations

import gc

import numpy as np
import pytest

import libkvbm


def registered(manager: libkvbm.Manager, ns: libkvbm.Namespace, n: int) -> tuple[libkvbm.Blocks, libkvbm.Keys]:
    keys = libkvbm.Keys.chain(ns, range(n), 1)
    blocks = manager.allocate(ns, n)
    for i in range(n):
        with blocks.view(i) as view:
            view[:] = bytes([i + 1]) * 4096
    blocks.complete()
    assert list(blocks.register(ns, keys)) == [0] * n
    return blocks, keys


def test_a_view_is_the_librarys_memory(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with manager.allocate(ns, 2) as blocks:
        one, other = blocks.view(1), np.frombuffer(blocks.view(1), np.uint8)
        one[7] = 99
        assert other[7] == 99 and other.nbytes == 4096
        other[8] = 98
        assert one[8] == 98
        assert len(set(blocks.slots())) == 2


def test_what_changes_the_state_is_refused_while_there_are_views(manager: libkvbm.Manager,
                                                                 ns: libkvbm.Namespace) -> None:
    blocks = manager.allocate(ns, 2)
    kept = np.frombuffer(blocks.view(0), np.uint8)
    for refused in (blocks.complete, lambda: blocks.register(ns, bytes(32)), lambda: blocks.split(1)):
        with pytest.raises(BufferError):
            refused()
    kept[0] = 1
    del kept
    blocks.complete([100, 4096])
    view = blocks.view(0)
    assert view.readonly and view.nbytes == 100
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(BufferError):
        blocks.register(ns, libkvbm.Keys.chain(ns, range(2), 1))
    view.release()
    blocks.register(ns, libkvbm.Keys.chain(ns, range(2), 1))
    assert all(view.readonly for view in blocks.views())


def test_a_view_keeps_its_block(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    blocks, keys = registered(manager, ns, 2)
    view = blocks.view(1)
    blocks.release()
    blocks.release()
    assert blocks.released and view[0] == 2 and manager.stats().holds == 2
    with pytest.raises(libkvbm.ClosedError):
        blocks.view(0)
    # Everything else is evicted or held, and still nothing takes the block away.
    n = manager.stats().tiers[0].capacity_bytes // 8192
    with pytest.raises(libkvbm.NoRoomError):
        while n:
            manager.allocate(ns, n).ids
            held = [manager.allocate(ns, 1) for _ in range(1 << 16)]
    held = []
    assert view[0] == 2 and view[4095] == 2
    view.release()
    assert manager.stats().holds == 0


def test_a_writable_view_keeps_a_partial_block(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    view = manager.allocate(ns, 1).view()
    gc.collect()
    assert manager.stats().holds == 1
    others = [manager.allocate(ns, 1) for _ in range(100)]
    for other in others:
        other.view()[:] = b"\xff" * 4096
    view[:] = b"\x01" * 4096
    assert all(bytes(other.view()) == b"\xff" * 4096 for other in others)
    del view
    assert manager.stats().holds == len(others)


def test_a_view_keeps_a_closed_managers_memory(context: libkvbm.Context) -> None:
    manager = libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20)
    ns = libkvbm.Namespace(manager, "m")
    blocks, _ = registered(manager, ns, 1)
    view = blocks.view()
    ns.close()
    manager.close()
    context.close()
    del blocks, manager, ns
    gc.collect()
    assert bytes(view) == b"\x01" * 4096


def test_clone_weak_and_match_holds(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    blocks, keys = registered(manager, ns, 3)
    more, weak = blocks.clone(), blocks.downgrade()
    blocks.release()
    assert weak.upgrade().present == [True] * 3
    with manager.lookup(ns, keys) as match, match.blocks(1) as found:
        assert [view[0] for view in found.views()] == [2, 3] and len(found) == 2
    more.release()
    manager.drop(ns, keys)
    assert weak.upgrade().present == [False] * 3
    assert weak.weak
    with pytest.raises(libkvbm.KvbmError):
        weak.view()


def test_split_and_take_move_holds(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    blocks, _ = registered(manager, ns, 5)
    first, rest = blocks.split(2)
    assert blocks.released and len(first) == 2 and rest.view(0)[0] == 3
    last, = rest.take([2])
    assert last.view()[0] == 5 and manager.stats().holds == 3
    with pytest.raises(IndexError):
        first.take([0, 0])
    first.release()
    last.release()
    assert manager.stats().holds == 0
    partial = manager.allocate(ns, 2)
    left, right = partial.split(1)
    left.view()[0] = 1
    right.complete()


def test_wrong_indices_and_lengths(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    blocks = manager.allocate(ns, 2)
    for i in (2, -3, 1 << 40):
        with pytest.raises(IndexError):
            blocks.view(i)
    with pytest.raises(IndexError):
        blocks.views(1, 2)
    with pytest.raises(ValueError):
        blocks.complete([1])
    with pytest.raises(libkvbm.KvbmError):
        blocks.complete([1, 1 << 40])
    blocks.complete()
    with pytest.raises(ValueError):
        blocks.register(ns, libkvbm.Keys.chain(ns, range(3), 1))
    with pytest.raises(libkvbm.CallerError):
        blocks.complete()
    blocks.register(ns, libkvbm.Keys.chain(ns, range(2), 1))


def test_duplicates_are_told(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    _, keys = registered(manager, ns, 2)
    again = manager.allocate(ns, 2)
    again.complete()
    exists = int(libkvbm.Status.EXISTS)
    assert list(again.register(ns, keys)) == [exists, exists]
    assert [view[0] for view in again.views()] == [1, 2]


def test_another_managers_blocks_are_foreign(context: libkvbm.Context, manager: libkvbm.Manager,
                                             ns: libkvbm.Namespace) -> None:
    with libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20) as other, \
            libkvbm.Namespace(other, "m") as space:
        with pytest.raises(libkvbm.CallerError):
            manager.allocate(space, 1)
        with pytest.raises(libkvbm.CallerError):
            manager.lookup(space, bytes(16))
