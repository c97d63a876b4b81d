"""A connector of AIBrix's, made up in memory, as a store."""
from __future__ import annotations

import asyncio
import enum
import threading
import types
from typing import Any, Optional, Sequence

import pytest

import libkvbm
from libkvbm.connector_store import ConnectorStore
from test_store import CONTENT, N, load, until, world


class StatusCodes(enum.Enum):
    OK, ERROR, NOT_FOUND, DENIED, TIMEOUT, OUT_OF_MEMORY = range(6)


class Status:
    def __init__(self, code: StatusCodes = StatusCodes.OK, value: Optional[str] = None) -> None:
        self.error_code, self.value = code, value


class Plain:
    """As AIBrix's connectors: a value goes into a region of its size alone. `values` outlives it, as a server would."""

    name = "Fake"
    feature: Any = types.SimpleNamespace(mput_mget=False, rdma=False)

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self.values = values
        self.open_count = self.batches = 0
        self.says: Optional[Status] = None
        self.slabs: list[Any] = []

    def open(self) -> Status:
        self.open_count += 1
        return Status()

    def close(self) -> Status:
        self.open_count -= 1
        return Status()

    def register_slabs(self, slabs: Sequence[Any]) -> Status:
        self.slabs += slabs
        return Status()

    def exists(self, key: bytes) -> Status:
        return Status() if key in self.values else Status(StatusCodes.NOT_FOUND)

    def get(self, key: bytes, mr: Any) -> Status:
        assert self.open_count == 1 and type(key) is bytes and len(key) == 16
        if self.says is not None:
            return self.says
        value = self.values.get(key)
        if value is None:
            return Status(StatusCodes.NOT_FOUND)
        if len(value) != mr.length:
            return Status(StatusCodes.ERROR, "another size")
        mr.fill(value)
        return Status()

    def put(self, key: bytes, mr: Any) -> Status:
        if self.says is not None:
            return self.says
        self.values[key] = mr.tobytes()
        return Status()

    def delete(self, key: bytes) -> Status:
        return Status() if self.values.pop(key, None) is not None else Status(StatusCodes.NOT_FOUND)


class Asynchronous(Plain):
    """With everything that a connector may have."""

    feature = types.SimpleNamespace(mput_mget=True, rdma=True, prefetch=True)

    async def exists(self, key: bytes) -> Status:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().exists(key)

    async def get(self, key: bytes, mr: Any) -> Status:  # type: ignore[override]
        await asyncio.sleep(0)
        assert any(mr.slab is slab for slab in self.slabs)
        return super().get(key, mr)

    async def put(self, key: bytes, mr: Any) -> Status:  # type: ignore[override]
        await asyncio.sleep(0)
        assert any(mr.slab is slab for slab in self.slabs)
        return super().put(key, mr)

    async def delete(self, key: bytes) -> Status:  # type: ignore[override]
        return super().delete(key)

    def get_batches(self, keys: Sequence[Any], mrs: Sequence[Any], batch_size: int) -> Any:
        pairs = list(zip(keys, mrs))
        return [pairs[i:i + 3] for i in range(0, len(pairs), 3)]

    async def mget(self, keys: Sequence[bytes], mrs: Sequence[Any]) -> Any:
        self.batches += 1
        return [await self.get(key, mr) for key, mr in zip(keys, mrs)]

    async def mput(self, keys: Sequence[bytes], mrs: Sequence[Any]) -> Any:
        self.batches += 1
        return [await self.put(key, mr) for key, mr in zip(keys, mrs)]


class Lists(Plain):
    """Takes lists of regions, as connectors with GPU direct do."""

    feature = types.SimpleNamespace(gdr_put=True, gdr_get=True)

    def get(self, key: bytes, mr: Any) -> Status:
        [one] = mr
        return super().get(key, one)

    def put(self, key: bytes, mr: Any) -> Status:
        [one] = mr
        return super().put(key, one)


@pytest.mark.parametrize("kind", [Plain, Asynchronous, Lists])
def test_another_process_finds_and_loads_what_one_has_put(kind: Any) -> None:
    values: dict[bytes, bytes] = {}
    one, other = kind(values), kind(values)
    with world(ConnectorStore(one, writer=0, writers=2, value_bytes=4096)) as first, \
            world(ConnectorStore(other, writer=1, writers=2, value_bytes=4096)) as second:
        first.cache.store(first.keys, range(N))
        assert first.manager.flush() == libkvbm.Status.OK
        assert load(second).status == libkvbm.Status.OK
        assert second.kv == CONTENT
        assert second.manager.stats().tiers[1].loads == N
    until(lambda: one.open_count == other.open_count == 0)
    if kind is Asynchronous:
        assert one.batches > 0 and other.batches > 0
    assert {len(value) for value in values.values()} == {4096, 32 << 10}


def test_a_process_of_the_same_number_goes_on_where_one_ended() -> None:
    values: dict[bytes, bytes] = {}
    for _ in range(2):
        connector = Plain(values)
        with world(ConnectorStore(connector)) as w:
            w.cache.store(w.keys, range(N))
            w.manager.flush()
        until(lambda: connector.open_count == 0)
    with world(ConnectorStore(Plain(values))) as w:
        assert load(w).status == libkvbm.Status.OK and w.kv == CONTENT


@pytest.mark.parametrize("code", ["ERROR", "DENIED", "TIMEOUT", "OUT_OF_MEMORY", "NOT_FOUND"])
def test_what_a_connector_refuses_is_no_wrong_block(code: str) -> None:
    values: dict[bytes, bytes] = {}
    connector = Plain(values)
    with world(ConnectorStore(connector)) as w:
        w.cache.store(w.keys, range(N))
        w.manager.flush()
    until(lambda: connector.open_count == 0)
    reader = Plain(values)
    with world(ConnectorStore(reader)) as w:
        from test_store import found
        found(w).release()
        reader.says = Status(StatusCodes[code], "it says no")
        outcome = load(w, timeout_ns=10**9)
        assert all(outcome.item_status)


# ---- the store by itself




def test_objects_are_read_in_ranges() -> None:
    data = bytes(i * 7 % 251 for i in range(3 * 4064 + 100))
    store = ConnectorStore(Plain({}), value_bytes=4096)

    async def steps() -> None:
        await store.put("v1/p/a", memoryview(data))
        for offset, size in ((0, len(data)), (0, 10), (4060, 10), (4064, 4064), (5000, 9000), (12290, 500), (99999, 8)):
            buffer = bytearray(size)
            n = await store.get("v1/p/a", offset, memoryview(buffer))
            assert n == len(data[offset:offset + size]) and buffer[:n] == data[offset:offset + size]
        await store.put("v1/p/empty", memoryview(b""))
        assert await store.get("v1/p/empty", 0, memoryview(bytearray(4))) == 0
        for missing in ("v1/p/b", "v1/p/"):
            with pytest.raises(KeyError):
                await store.get(missing, 0, memoryview(bytearray(4)))
        await store.remove("v1/p/a")
        await store.remove("v1/p/a")
        assert await store.list("v1/", "") == set()

    asyncio.run(steps())
    assert len(store._connector.values) == 1  # the empty one: what is removed is gone


def test_the_names_of_many_objects_are_kept_and_those_of_gone_ones_leave() -> None:
    values: dict[bytes, bytes] = {}
    names = [f"v1/i/{i:08x}" for i in range(1200)]

    async def write() -> None:
        store = ConnectorStore(Plain(values), writer=0, writers=2, value_bytes=4096)
        await store.put("v1/e/epoch", memoryview(b"e"))
        for name in names:
            await store.put(name, memoryview(b"x"))

    async def read() -> set[str]:
        reader = ConnectorStore(Plain(values), writer=1, writers=2, value_bytes=4096)
        return set(await reader.list("v1/", ""))

    asyncio.run(write())
    assert asyncio.run(read()) == {*names, "v1/e/epoch"}

    async def collect_and_go_on() -> None:
        other = ConnectorStore(Plain(values), writer=1, writers=2, value_bytes=4096)
        for name in names[:600]:  # another process may collect what this one has put
            await other.remove(name)
        store = ConnectorStore(Plain(values), writer=0, writers=2, value_bytes=4096)
        for i in range(200):
            await store.put(f"v1/w/{i:08x}", memoryview(b"x"))

    asyncio.run(collect_and_go_on())
    left = asyncio.run(read())
    assert {*names[600:], "v1/e/epoch"} <= left and not left & set(names[:512])


def test_two_processes_with_one_number_are_told() -> None:
    values: dict[bytes, bytes] = {}

    async def steps() -> None:
        one, other = ConnectorStore(Plain(values)), ConnectorStore(Plain(values))
        await one.put("v1/i/a", memoryview(b"x"))
        await other.put("v1/i/b", memoryview(b"x"))
        assert await other.list("v1/i/", "") == {"v1/i/a", "v1/i/b"}
        with pytest.raises(PermissionError, match="another process is writer 0 of aibrix:Fake"):
            await one.put("v1/i/c", memoryview(b"x"))

    asyncio.run(steps())


def test_a_value_that_another_write_left_is_not_taken() -> None:
    values: dict[bytes, bytes] = {}

    async def steps() -> None:
        store = ConnectorStore(Plain(values), value_bytes=4096)
        await store.put("v1/p/a", memoryview(bytes(8000)))
        old = dict(values)
        await store.put("v1/p/a", memoryview(bytes(8000)))
        key = store._key("v1/p/a", 1)
        values[key] = old[key]
        with pytest.raises(OSError, match="written anew"):
            await store.get("v1/p/a", 0, memoryview(bytearray(8000)))

    asyncio.run(steps())


def test_memory_that_a_connector_still_uses_is_not_given_to_another() -> None:
    go_on = threading.Event()

    class Hangs(Plain):
        def get(self, key: bytes, mr: Any) -> Status:
            go_on.wait()
            mr.fill(b"?" * mr.length)
            return Status()

    async def steps() -> None:
        store = ConnectorStore(Hangs({}), value_bytes=4096, slots=2)
        store._opened = True
        task = asyncio.create_task(store.get("v1/p/a", 0, memoryview(bytearray(8))))
        while len(store._slots._free) == 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(store._slots._free) == 1
        go_on.set()
        while len(store._slots._free) != 2:
            await asyncio.sleep(0)

    asyncio.run(steps())


def test_wrong_arguments_are_refused() -> None:
    for wrong in ({"writer": 1}, {"writer": -1}, {"writers": 5000}, {"value_bytes": 100}, {"slots": 1}):
        with pytest.raises(ValueError):
            ConnectorStore(Plain({}), **wrong)  # type: ignore[arg-type]
