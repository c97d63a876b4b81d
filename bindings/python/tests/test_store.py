"""Stores that are Python objects."""
from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

import pytest

import libkvbm
from libkvbm import store as store_module

BLOCK = 4096
N = 6
FAST = {"poll": "20ms", "publish": "10ms", "linger": "1ms"}
CONTENT = b"".join(bytes([65 + i]) * BLOCK for i in range(N))


class Objects(libkvbm.Store):
    """A dict, which several may have."""

    def __init__(self, objects: Optional[dict[str, Any]] = None) -> None:
        self.objects = {} if objects is None else objects
        self.closed = threading.Event()

    def put(self, name: str, data: memoryview) -> None:
        self.objects[name] = bytes(data)

    def get(self, name: str, offset: int, buffer: memoryview) -> Optional[int]:
        found = self.objects[name][offset:offset + len(buffer)]
        buffer[:len(found)] = found
        return len(found)

    def remove(self, name: str) -> None:
        del self.objects[name]

    def list(self, prefix: str, after: str) -> Any:
        return list(self.objects)

    def close(self) -> None:
        self.closed.set()


class Coroutines(libkvbm.Store):
    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.closed = threading.Event()
        self.loops: set[Any] = set()

    async def put(self, name: str, data: memoryview) -> None:
        await asyncio.sleep(0)
        self.loops.add(asyncio.get_running_loop())
        self.objects[name] = bytes(data)

    async def get(self, name: str, offset: int, buffer: memoryview) -> Optional[int]:
        await asyncio.sleep(0)
        found = self.objects.get(name)
        if found is None:
            return None
        part = found[offset:offset + len(buffer)]
        buffer[:len(part)] = part
        return len(part)

    async def remove(self, name: str) -> None:
        self.objects.pop(name, None)

    async def list(self, prefix: str, after: str) -> AsyncIterator[str]:
        for name in list(self.objects):
            yield name

    async def close(self) -> None:
        self.closed.set()


class World(NamedTuple):
    manager: libkvbm.Manager
    keys: libkvbm.Keys
    cache: libkvbm.Cache
    kv: bytearray


@contextmanager
def world(store: libkvbm.Store, **options: str) -> Iterator[World]:
    tier = libkvbm.Tier(store=store, options={**FAST, **options})
    with libkvbm.Context() as context, \
            libkvbm.Manager(context, block_bytes=BLOCK, host_capacity_bytes=1 << 20, tiers=[tier]) as manager, \
            libkvbm.Namespace(manager, "m") as ns:
        kv = bytearray(CONTENT)
        keys = libkvbm.Keys.chain(ns, range(N), 1)
        with libkvbm.Cache(manager, ns, N, tensors=[kv]) as cache:
            yield World(manager, keys, cache, kv)


def until(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def fill(store: libkvbm.Store) -> None:
    with world(store) as w:
        w.cache.store(w.keys, range(N))
        assert w.manager.flush() == libkvbm.Status.OK
    assert until(store.closed.is_set)  # type: ignore[attr-defined]


def found(w: World) -> libkvbm.Match:
    """All blocks, as soon as they are known of."""
    def look() -> Optional[libkvbm.Match]:
        match = w.cache.lookup(w.keys)
        if match.hits == N:
            return match
        match.release()
        return None

    return until(look)  # type: ignore[no-any-return]


def load(w: World, **options: Any) -> libkvbm.cache.Outcome:
    w.kv[:] = bytes(len(w.kv))
    with found(w) as match:
        try:
            return w.cache.load(match, range(N), **options)
        except libkvbm.KvbmError as error:  # none of the blocks
            assert error.item_status is not None
            return libkvbm.cache.Outcome(error.status, error.item_status)


@pytest.mark.parametrize("kind", [Objects, Coroutines])
def test_another_manager_finds_and_loads_what_one_has_put(kind: Any) -> None:
    objects: dict[str, bytes] = {}
    fill(kind(objects))
    assert any(name.startswith("v1/i/") for name in objects) and all(type(data) is bytes for data in objects.values())
    reader = kind(objects)
    with world(reader) as w:
        assert load(w).status == libkvbm.Status.OK
        assert w.kv == CONTENT
        assert w.manager.stats().tiers[1].loads == N
    assert until(reader.closed.is_set)


def test_coroutines_run_on_one_loop_of_their_own() -> None:
    store = Coroutines({})
    fill(store)
    assert len(store.loops) == 1 and all(loop.is_closed() for loop in store.loops)


@pytest.mark.parametrize("error", [KeyError("x"), FileNotFoundError("x"), TimeoutError("x"), PermissionError("x"),
                                   OSError("x"), OSError(28, "full"), ValueError("x"), SystemExit(1),
                                   asyncio.CancelledError()])
@pytest.mark.parametrize("kind", [Objects, Coroutines])
def test_a_store_that_raises_at_gets_gives_misses_and_no_wrong_block(kind: Any, error: BaseException) -> None:
    if kind is Coroutines and isinstance(error, SystemExit):
        pytest.skip("ends an event loop, as everywhere")
    objects: dict[str, bytes] = {}
    fill(kind(objects))

    class Raises(kind):  # type: ignore[misc]
        def check(self, name: str) -> None:
            if name.startswith("v1/p/"):
                raise error

    if kind is Objects:
        class Raising(Raises):
            def get(self, name: str, offset: int, buffer: memoryview) -> Any:
                part = buffer[1:]  # in a frame of the traceback
                self.check(name)
                return super().get(name, offset, buffer)
    else:
        class Raising(Raises):  # type: ignore[no-redef]
            async def get(self, name: str, offset: int, buffer: memoryview) -> Any:
                part = buffer[1:]
                self.check(name)
                return await super().get(name, offset, buffer)

    store = Raising(objects)
    with world(store) as w:
        outcome = load(w, timeout_ns=10**9)
        assert set(outcome.item_status) & {0} == set(), outcome
    assert until(store.closed.is_set)


def test_a_store_that_raises_at_puts_takes_nothing_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Full(Objects):
        def put(self, name: str, data: memoryview) -> None:
            raise PermissionError("the bucket is somebody else's")

    store = Full()
    with caplog.at_level(logging.WARNING, "libkvbm"), world(store) as w:
        w.cache.store(w.keys, range(N))
        assert w.manager.flush() == libkvbm.Status.PARTIAL
        assert w.cache.load(w.cache.lookup(w.keys), range(N)).status == libkvbm.Status.OK  # the blocks are in the host
    assert store.objects == {}
    until(lambda: "the bucket is somebody else's" in caplog.text)
    assert "python:Full" in caplog.text


@pytest.mark.parametrize("lie", ["other bytes", "short", "too many", "a text", "zeros", "nothing written"])
def test_a_store_that_lies_gives_misses_and_no_wrong_block(lie: str) -> None:
    objects: dict[str, bytes] = {}
    fill(Objects(objects))

    class Lies(Objects):
        def get(self, name: str, offset: int, buffer: memoryview) -> Any:
            if not name.startswith("v1/p/"):
                return super().get(name, offset, buffer)
            if lie == "nothing written":
                return len(buffer)
            n = super().get(name, offset, buffer)
            if lie == "other bytes":
                for i in range(0, len(buffer), BLOCK // 2):
                    buffer[i + 700 if i + 700 < len(buffer) else i] ^= 1
            if lie == "zeros":
                buffer[:] = bytes(len(buffer))
            return {"short": len(buffer) // 2, "too many": len(buffer) + 1, "a text": "all"}.get(lie, n)

    with world(Lies(objects)) as w:
        outcome = load(w, timeout_ns=2 * 10**9)
        assert outcome.status != libkvbm.Status.OK
        for i, status in enumerate(outcome.item_status):
            assert status != 0 or w.kv[i * BLOCK:(i + 1) * BLOCK] == CONTENT[i * BLOCK:(i + 1) * BLOCK]
    assert lie == "short" or all(outcome.item_status)


def test_names_that_are_none_are_an_error_of_the_store() -> None:
    objects: dict[str, bytes] = {}
    fill(Objects(objects))
    good = threading.Event()

    class Names(Objects):
        asked = 0

        def list(self, prefix: str, after: str) -> Any:
            if good.is_set():
                return super().list(prefix, after)
            self.asked += 1
            return 7 if self.asked % 2 else [b"bytes"]

    store = Names(objects)
    with world(store) as w:
        until(lambda: store.asked > 1)
        with w.cache.lookup(w.keys) as match:
            assert match.hits == 0
        good.set()
        assert load(w).status == libkvbm.Status.OK


@pytest.mark.parametrize("kind", [Objects, Coroutines])
def test_a_load_from_a_store_that_hangs_ends_at_its_deadline(kind: Any) -> None:
    objects: dict[str, bytes] = {}
    fill(kind(objects))
    go_on, cancelled = threading.Event(), threading.Event()

    class Hangs(kind):  # type: ignore[misc]
        def get(self, name: str, offset: int, buffer: memoryview) -> Any:
            if kind is Coroutines:
                return super().get(name, offset, buffer)
            if name.startswith("v1/p/"):
                go_on.wait()
            return super().get(name, offset, buffer)

    if kind is Coroutines:
        class Hanging(Hangs):
            async def get(self, name: str, offset: int, buffer: memoryview) -> Any:
                if name.startswith("v1/p/"):
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        cancelled.set()
                        raise
                return await super().get(name, offset, buffer)
    else:
        Hanging = Hangs  # type: ignore[misc]

    store = Hanging(objects)
    with world(store, timeout="1s") as w:
        begun = time.monotonic()
        outcome = load(w, timeout_ns=200_000_000)
        assert all(outcome.item_status) and time.monotonic() - begun < 30
        w.kv[:] = bytes(len(w.kv))
        if kind is Coroutines:
            assert cancelled.wait(60)
        go_on.set()
        assert until(lambda: w.manager.stats().tiers[1].loads == 0)
    assert until(store.closed.is_set)
    assert not any(w.kv)  # late bytes are discarded


def test_memory_that_a_store_keeps_cannot_be_used_after_the_call() -> None:
    class Keeps(Objects):
        kept: list[memoryview] = []

        def put(self, name: str, data: memoryview) -> None:
            self.kept.append(data)
            super().put(name, data)

    store = Keeps()
    fill(store)
    assert store.kept
    for view in store.kept:
        with pytest.raises(ValueError, match="released"):
            view[0]


def test_an_operation_does_not_end_while_a_part_of_its_memory_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    class Keeps(Objects):
        kept: list[memoryview] = []
        keeps = True

        def put(self, name: str, data: memoryview) -> None:
            if self.keeps and name.startswith("v1/p/"):
                self.kept.append(data[8:16])
            super().put(name, data)

    store = Keeps()
    with world(store, timeout="60s") as w:
        w.cache.store(w.keys, range(N))
        until(lambda: "keeps memory" in caplog.text)
        assert [name for name in store.objects if name.startswith("v1/i/")] == []  # the put is not over
        assert len(store.kept[0].tobytes()) == 8
        store.keeps = False
        store.kept.clear()
        w.cache.store(libkvbm.Keys.chain(w.cache.ns, range(100, 100 + N), 1), range(N))
        until(lambda: [name for name in store.objects if name.startswith("v1/i/")])
    assert until(store.closed.is_set)


def test_a_tier_has_one_place() -> None:
    for wrong in ({}, {"path": "/x", "url": "file:///x"}, {"path": "/x", "store": Objects()},
                  {"url": "file:///x", "store": Objects()}, {"url": "file:///x", "options": {}}):
        with pytest.raises(libkvbm.CallerError, match="a tier has"):
            libkvbm.Tier(**wrong)


def test_what_is_no_store_is_refused(context: libkvbm.Context) -> None:
    class Mixed(Objects):
        async def remove(self, name: str) -> None:  # type: ignore[override]
            pass

    class Wide(Objects):
        concurrency = 1000

    def make(store: Any, **options: str) -> None:
        libkvbm.Manager(context, tiers=[libkvbm.Tier(store=store, options=options)])

    with pytest.raises(TypeError, match="libkvbm.Store"):
        make(7)
    with pytest.raises(TypeError, match="remove of put, get, remove, list are coroutines"):
        make(Mixed())
    with pytest.raises(ValueError, match="concurrency is 1000"):
        make(Wide())
    with pytest.raises(libkvbm.CallerError, match="did you mean poll"):
        make(Objects(), pol="1s")
    assert until(lambda: not store_module._services)  # a store that failed to start holds nothing


def test_a_store_serves_one_manager_at_a_time() -> None:
    store = Objects()
    with world(store):
        with pytest.raises(libkvbm.CallerError, match="serves another manager"), world(store):
            pass
    until(lambda: not store_module._services)
    with world(store):
        pass


@pytest.mark.parametrize("kind", [Objects, Coroutines])
def test_threads_and_store_go_with_the_manager(kind: Any) -> None:
    before = threading.active_count()
    store = kind({})
    gone = weakref.ref(store)
    with world(store):
        assert threading.active_count() > before
    del store
    until(lambda: threading.active_count() <= before)
    gc.collect()
    assert gone() is None


PROGRAM = """
import gc, os, sys, time, asyncio, libkvbm
from test_store import *
objects = {}
store = %s(objects)
tier = libkvbm.Tier(store=store, options=FAST)
context = libkvbm.Context()
manager = libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20, tiers=[tier])
ns = libkvbm.Namespace(manager, "m")
kv = bytearray(CONTENT)
cache = libkvbm.Cache(manager, ns, N, tensors=[kv])
cache.store(libkvbm.Keys.chain(ns, range(N), 1), range(N))
"""


@pytest.mark.parametrize("kind", ["Objects", "Coroutines"])
@pytest.mark.parametrize("ending", ["", "manager.flush()", "import builtins; builtins.kept = (cache, manager, ns)",
                                    "store.put = None", "raise SystemExit(0)"])
def test_a_program_may_end_with_an_open_manager(kind: str, ending: str) -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM % kind + ending], cwd=sys.path[0] or ".",
                          env={"PYTHONPATH": __file__.rpartition("/")[0]}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Fatal" not in done.stderr and "terminate" not in done.stderr, done.stderr


def test_a_forked_child_leaves_the_store_alone() -> None:
    program = textwrap.dedent("""
        manager.flush()
        child = os.fork()
        if child == 0:
            n = len(objects)
            del cache, ns, manager, context, tier, store
            gc.collect()
            os._exit(0 if len(objects) == n else 1)
        assert os.waitpid(child, 0)[1] == 0
        n = len(objects)
        cache.store(libkvbm.Keys.chain(ns, range(100, 100 + N), 1), range(N))
        assert manager.flush() == 0 and len(objects) > n
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM % "Objects" + program],
                          env={"PYTHONPATH": __file__.rpartition("/")[0]}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
