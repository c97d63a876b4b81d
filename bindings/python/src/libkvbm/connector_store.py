"""A connector of AIBrix's KV cache as a store of libkvbm: blocks are kept where AIBrix keeps its own.

    from libkvbm.aibrix import ConnectorStore        # or, without aibrix-kvcache, libkvbm.connector_store
    tier = libkvbm.Tier(store=ConnectorStore(connector, writer=rank, writers=ranks))

A connector keeps values of fixed sizes under keys that are bytes, and cannot list them. So an object is cut into values
of `value_bytes`, each with a head that says which part of which write it is, and every writer keeps a directory: the
names that it has put, in values of its own. A process writes one directory, the one of its number, and reads those of
all `writers`; no value has two writers, so nothing is lost where two write at once. The connector's methods may be
coroutines, or plain ones, which are called on other threads. Nothing of AIBrix is imported: the names of its methods
are enough.
"""
from __future__ import annotations

import asyncio
import errno
import hashlib
import inspect
import json
import os
import struct
import sys
import zlib
from typing import Any, Callable, Iterable, List, Optional, Sequence

from .store import Store

_HEAD = struct.Struct("<4sIQ16s")  # magic, part, bytes of the object, which write it is
_MAGIC = b"KVSO"
_DIRECTORY_BYTES = 32 << 10
_SEGMENT = 512  # names that are in the directory's first value, before they get one of their own
_CHECKED = 4  # old names of which a write of the directory asks whether their objects are still there
_PACKS = "v1/p/"  # the only objects that nothing lists
_EPOCHS = "v1/e/"
_BATCH = 16


class ConnectorStore(Store):
    """`value_bytes`: of one value; a connector may have a limit (InfiniStore: 4 MiB). `slots`: values under way at a
    time. `writer`: the number of this process, of `writers` that use the connector's store together: 0 to writers - 1,
    and no two at a time may have the same. `prefix` keeps stores apart that use one connector. A store that removes
    values by itself must not be used where namespaces are invalidated: it may forget that they were."""

    concurrency = 32

    def __init__(self, connector: Any, *, writer: int = 0, writers: int = 1, value_bytes: int = 1 << 20,
                 slots: int = 32, prefix: str = "kvbm") -> None:
        if not 0 <= writer < writers <= 1024:
            raise ValueError(f"writer is {writer} of {writers}: a number from 0, below writers, which are at most 1,024")
        if value_bytes < 4096 or slots < 2:
            raise ValueError(f"value_bytes is {value_bytes} and slots {slots}: at least 4,096 and 2")
        self._connector, self._prefix = connector, prefix.encode()
        self._writer, self._writers = writer, writers
        self._payload = value_bytes - _HEAD.size
        self.object_bytes = max(1, (4 << 20) // value_bytes) * self._payload
        feature = getattr(connector, "feature", None)
        self._many = bool(getattr(feature, "mput_mget", False))
        self._listed_regions = {"put": bool(getattr(feature, "gdr_put", False)),
                                "get": bool(getattr(feature, "gdr_get", False))}
        self._rdma = bool(getattr(feature, "rdma", False)) or any(self._listed_regions.values())
        self._slots = _Slots(value_bytes, slots)
        self._directory_slots = _Slots(_DIRECTORY_BYTES, 4)
        self._own = _Directory()
        self._sealed: dict[bytes, list[str]] = {}  # of others, which do not change any more
        self._lock: Optional[asyncio.Lock] = None
        self._opened = False

    def __str__(self) -> str:
        return f"aibrix:{getattr(self._connector, 'name', type(self._connector).__name__)}"

    # ---- a store's methods

    async def put(self, name: str, data: memoryview) -> None:
        await self._open()
        await self._write(self._slots, name, data)
        if not name.startswith(_PACKS):
            await self._change(name, put=True)

    async def get(self, name: str, offset: int, buffer: memoryview) -> int:
        await self._open()
        size = self._payload
        first = offset // size
        try:
            head, data = await self._read_part(name, first)
        except KeyError:
            if first == 0:
                raise
            head, data = await self._read_part(name, 0)  # the object may end before
            if offset < head[2]:
                raise
            return 0
        end: int = max(offset, min(head[2], offset + len(buffer)))
        _copy(buffer, offset, end, first * size, data)
        wanted = range(first + 1, -(-end // size))
        for at, (other, data) in zip(wanted, await self._read_parts(name, wanted)):
            if other[2:] != head[2:]:
                raise OSError(errno.EIO, "it is being written anew")
            _copy(buffer, offset, end, at * size, data)
        return end - offset

    async def remove(self, name: str) -> None:
        await self._open()
        try:
            (_, _, size, _), _ = await self._read_part(name, 0)
        except KeyError:
            size = 0
        for part in range(max(1, -(-size // self._payload))):  # the first one first: without it there is no object
            try:
                _check(await self._call("delete", self._key(name, part)))
            except KeyError:
                pass
        if not name.startswith(_PACKS):
            await self._change(name, put=False)

    async def list(self, prefix: str, after: str) -> Iterable[str]:
        await self._open()
        async with self._locked():
            names = set(self._own.names())
        for others in await asyncio.gather(*[self._names_of(w) for w in range(self._writers) if w != self._writer]):
            names.update(others)
        return names

    async def close(self) -> None:
        if self._opened:
            await self._call("close")
        self._opened, self._lock, self._own = False, None, _Directory()
        self._sealed.clear()

    # ---- directories

    async def _open(self) -> None:
        async with self._locked():
            if self._opened:
                return
            _check(await self._call("open"))
            if self._rdma:
                slabs = [self._slots.slab, self._directory_slots.slab]
                _check(await self._call("register_slabs", slabs))
            found = await self._read_directory(self._writer)
            if found is not None:
                # Files left by an earlier process with this number.
                self._own = found
                self._own.closed = [await self._read_segment(self._writer, number) for number in found.segments]
            self._own.instance, self._own.before = os.urandom(8).hex(), self._own.instance
            self._opened = True

    def _locked(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()  # of the loop that the store runs on
        return self._lock

    async def _change(self, name: str, put: bool) -> None:
        async with self._locked():
            own = self._own
            found = await self._read_directory(self._writer)
            if found is not None and found.instance not in (own.instance, own.before):
                raise PermissionError(f"another process is writer {self._writer} of {self}: give each its own number")
            if put:
                own.add(name)
            else:
                own.discard(name)
            for old in own.oldest(_CHECKED):
                if old != name and not await self._exists(old):
                    own.discard(old)
            if len(own.open) >= _SEGMENT:
                number = own.next
                await self._write_names(self._place(self._writer, number), {"names": own.open})
                own.seal()
            gone = own.empty_segments()
            await self._write_names(self._place(self._writer), own.as_json())
            own.before = own.instance
            for number in gone:
                await self._call("delete", self._key(self._place(self._writer, number), 0))

    async def _exists(self, name: str) -> bool:
        try:
            _check(await self._call("exists", self._key(name, 0)))
        except KeyError:
            return False
        return True

    async def _names_of(self, writer: int) -> List[str]:
        found = await self._read_directory(writer)
        if found is None:
            return []
        names = found.epochs + found.open
        for number in found.segments:
            place = f"{self._place(writer, number)}".encode()
            if place not in self._sealed:
                self._sealed[place] = await self._read_segment(writer, number)
            names += self._sealed[place]
        for place in [place for place in self._sealed if place.startswith(f"{self._place(writer)}/".encode())]:
            if int(place.rpartition(b"/")[2]) not in found.segments:
                del self._sealed[place]
        return names

    @staticmethod
    def _place(writer: int, segment: Optional[int] = None) -> str:
        return f"d/{writer}" if segment is None else f"d/{writer}/{segment}"

    async def _read_directory(self, writer: int) -> Optional[_Directory]:
        read = await self._read_names(self._place(writer))
        return None if read is None else _Directory.of(read)

    async def _read_segment(self, writer: int, number: int) -> List[str]:
        read = await self._read_names(self._place(writer, number))
        return [] if read is None else [str(name) for name in read["names"]]

    async def _read_names(self, place: str) -> Any:
        try:
            (_, _, size, _), data = await self._read_part(place, 0, self._directory_slots)
        except KeyError:
            return None
        try:
            return json.loads(zlib.decompress(data[:size]))
        except (zlib.error, ValueError) as error:
            raise OSError(errno.EIO, f"the directory {place} is damaged: {error}") from None

    async def _write_names(self, place: str, names: Any) -> None:
        data = zlib.compress(json.dumps(names).encode(), 1)
        if len(data) > _DIRECTORY_BYTES - _HEAD.size:
            raise OSError(errno.ENOSPC, "the directory of this writer is full: let the tier have a capacity or a ttl")
        await self._write(self._directory_slots, place, memoryview(data))

    # ---- values

    def _key(self, name: str, part: int) -> bytes:
        return hashlib.blake2b(b"%s\0%s\0%d" % (self._prefix, name.encode(), part), digest_size=16).digest()

    async def _write(self, slots: _Slots, name: str, data: memoryview) -> None:
        """The first part last: with it the object is there."""
        stamp, size = os.urandom(16), slots.bytes - _HEAD.size
        parts = range(max(1, -(-len(data) // size)))
        for group in (parts[:0:-1], parts[:1]):
            if group:
                def fill(part: int, value: memoryview) -> None:
                    piece = data[part * size:(part + 1) * size]
                    _HEAD.pack_into(value, 0, _MAGIC, part, len(data), stamp)
                    value[_HEAD.size:_HEAD.size + len(piece)] = piece
                    value[_HEAD.size + len(piece):] = bytes(len(value) - _HEAD.size - len(piece))

                await self._transfer("put", slots, name, group, fill, lambda part, value: None)

    async def _read_part(self, name: str, part: int, slots: Optional[_Slots] = None) -> tuple[tuple[Any, ...], bytes]:
        return (await self._read_parts(name, range(part, part + 1), slots))[0]

    async def _read_parts(self, name: str, parts: range, slots: Optional[_Slots] = None
                          ) -> List[tuple[tuple[Any, ...], bytes]]:
        found: dict[int, tuple[tuple[Any, ...], bytes]] = {}

        def keep(part: int, value: memoryview) -> None:
            head = _HEAD.unpack_from(value)
            if head[0] != _MAGIC or head[1] != part:
                raise OSError(errno.EIO, "a value is not what was put there")
            found[part] = head, bytes(value[_HEAD.size:])

        await self._transfer("get", slots or self._slots, name, parts, lambda part, value: None, keep)
        return [found[part] for part in parts]

    async def _transfer(self, verb: str, slots: _Slots, name: str, parts: Sequence[int],
                        before: Callable[[int, memoryview], None], after: Callable[[int, memoryview], None]) -> None:
        """Puts or gets values through memory that the connector may have registered."""
        for first in range(0, len(parts), _BATCH):
            some = parts[first:first + min(_BATCH, slots.most)]
            taken = await slots.take(len(some))
            moving: Optional[asyncio.Task[List[Any]]] = None
            try:
                values = [slots.value(slot) for slot in taken]
                for part, value in zip(some, values):
                    before(part, value)
                moving = asyncio.create_task(self._move(verb, [self._key(name, part) for part in some],
                                                        [slots.region(slot) for slot in taken]))
                for status in await asyncio.shield(moving):
                    _check(status)
                for part, value in zip(some, values):
                    after(part, value)
            finally:
                if moving is None or moving.done():
                    slots.give(taken)
                else:  # nothing waits any more, and the connector still uses the memory
                    moving.add_done_callback(lambda task, taken=taken: slots.give(taken, task))  # type: ignore[misc]

    async def _move(self, verb: str, keys: List[bytes], regions: List[Any]) -> List[Any]:
        if self._listed_regions[verb]:
            regions = [[region] for region in regions]
        if not self._many or len(keys) == 1:
            return list(await asyncio.gather(*[self._call(verb, key, region) for key, region in zip(keys, regions)]))
        out: List[Any] = []
        for batch in self._connector.get_batches(keys, regions, _BATCH):
            said = await self._call("m" + verb, [key for key, _ in batch], [region for _, region in batch])
            out += said if isinstance(said, (list, tuple)) else [said] * len(batch)  # one for all: an exception of it
        return out

    async def _call(self, method: str, *arguments: Any) -> Any:
        function = getattr(self._connector, method)
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        result = await asyncio.to_thread(function, *arguments)
        return await result if inspect.isawaitable(result) else result


class _Directory:
    """Names of a writer: epochs, then in full segments, then the newest."""

    def __init__(self) -> None:
        self.instance = self.before = ""
        self.epochs: list[str] = []
        self.segments: list[int] = []
        self.closed: list[list[str]] = []  # of the segments, as far as their objects are there
        self.open: list[str] = []
        self.next = int.from_bytes(os.urandom(4), "little")  # no number twice, also where a directory was lost

    @classmethod
    def of(cls, read: Any) -> _Directory:
        out = cls()
        try:
            out.instance, out.next = str(read["instance"]), int(read["next"])
            out.epochs, out.open = [str(name) for name in read["epochs"]], [str(name) for name in read["names"]]
            out.segments = [int(number) for number in read["segments"]]
        except (KeyError, TypeError, ValueError) as error:
            raise OSError(errno.EIO, f"a directory is damaged: {error!r}") from None
        return out

    def as_json(self) -> Any:
        return {"instance": self.instance, "next": self.next, "epochs": self.epochs, "names": self.open,
                "segments": self.segments}

    def names(self) -> Iterable[str]:
        yield from self.epochs
        for segment in self.closed:
            yield from segment
        yield from self.open

    def add(self, name: str) -> None:
        names = self.epochs if name.startswith(_EPOCHS) else self.open
        if name not in names:
            names.append(name)

    def discard(self, name: str) -> None:
        for names in (self.epochs, self.open, *self.closed):
            if name in names:
                names.remove(name)

    def oldest(self, n: int) -> list[str]:
        """Not of epochs: their names say it all."""
        for names in (*self.closed, self.open):
            if names:
                return names[:n]
        return []

    def seal(self) -> None:
        self.segments.append(self.next)
        self.closed.append(self.open)
        self.next, self.open = self.next + 1, []

    def empty_segments(self) -> list[int]:
        gone = [number for number, names in zip(self.segments, self.closed) if not names]
        left = [(number, names) for number, names in zip(self.segments, self.closed) if names]
        self.segments, self.closed = [number for number, _ in left], [names for _, names in left]
        return gone


class _Slots:
    """Memory for values, cut into regions as AIBrix has them."""

    def __init__(self, size: int, n: int) -> None:
        self.bytes, self.most = size, n
        self.slab, self._memory, self._region = _slab(size * n)
        self._free = list(range(n))
        self._waiting: list[asyncio.Future[None]] = []

    async def take(self, n: int) -> list[int]:
        while len(self._free) < n:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        taken, self._free = self._free[:n], self._free[n:]
        return taken

    def give(self, slots: list[int], task: Optional[asyncio.Task[Any]] = None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # retrieved, so asyncio does not log it
        self._free += slots
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def value(self, slot: int) -> memoryview:
        return self._memory[slot * self.bytes:(slot + 1) * self.bytes]

    def region(self, slot: int) -> Any:
        return self._region(self.slab, slot * self.bytes, self.bytes)


class PlainRegion:
    """Imitates the part of AIBrix's MemoryRegion that connectors use, over a bytearray."""

    def __init__(self, slab: bytearray, addr: int, length: int) -> None:
        self.slab, self.addr, self.length = slab, addr, length

    def __len__(self) -> int:
        return self.length

    def fill(self, data: bytes) -> None:
        if len(data) != self.length:
            raise ValueError(f"a value of {len(data)} bytes for a region of {self.length}")
        self.slab[self.addr:self.addr + self.length] = data

    def tobytes(self) -> bytes:
        return bytes(memoryview(self.slab)[self.addr:self.addr + self.length])


def _slab(size: int) -> tuple[Any, memoryview, Callable[..., Any]]:
    """A connector of AIBrix's own wants its regions of torch's memory; they are there then."""
    aibrix = sys.modules.get("aibrix_kvcache.memory")
    if aibrix is None:
        slab = bytearray(size)
        return slab, memoryview(slab), PlainRegion
    import torch

    class Region(aibrix.MemoryRegion):  # type: ignore[misc,name-defined]
        def destroy_unsafe(self) -> None:
            pass  # the slab stays

    tensor = torch.zeros(size, dtype=torch.uint8)
    return tensor, memoryview(tensor.numpy()), Region


def _copy(buffer: memoryview, offset: int, end: int, at: int, data: bytes) -> None:
    """Of a part that begins at `at` what lies in [offset, end)."""
    first, last = max(offset, at), min(end, at + len(data))
    if first < last:
        buffer[first - offset:last - offset] = data[first - at:last - at]


def _check(status: Any) -> None:
    """AIBrix's status as an exception of Python's."""
    code = getattr(getattr(status, "error_code", None), "name", "ERROR")
    if code == "OK":
        return
    said = str(getattr(status, "value", None) or code)
    if code == "NOT_FOUND":
        raise KeyError(said)
    if code in ("TIMEOUT", "CANCELLED"):
        raise TimeoutError(said)
    if code == "DENIED":
        raise PermissionError(said)
    if code == "OUT_OF_MEMORY":
        raise OSError(errno.ENOSPC, said)
    raise OSError(errno.EIO, said)
