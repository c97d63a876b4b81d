"""Objects of any size over blocks of one size: what LMCache keeps are byte buffers, and a manager keeps blocks.

An object is cut into pieces of `piece_bytes`, the last one shorter. Each piece is a record under a key made of the
object's digest, so an object is there exactly if all of its pieces are. The keys of all pieces but the last carry the
object's size: pieces of two sizes of one object never mix, and the size of an object follows from its last piece.

Bytes move between the caller's memory and the library without a copy in between: each batch is described as an
attached opaque cache over that memory. Every batch ends with exactly one call of its `done`: on the thread of this
class, which waits for the library's queue, or on the caller's if nothing had to be moved.
"""
from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from typing import Callable, Optional, Sequence, TypeVar

from .. import _native as raw
from ..cache import Cache, Tensor
from ..constants import FOREVER, Lookup, MemoryKind
from ..engine import Aside, Configuration, Identity, MissedSpeed
from ..errors import KvbmError, NoRoomError, PeerError
from ..key import Keys
from ..manager import Manager
from ..namespace import Namespace
from ..queue import Queue
from ..stats import Stats
from .batch import Batch, Done, Found, Group, Item, Name

DIGEST_BYTES = 32
MOST_PIECES = 256
_LAST = b"\xff" * 8
_NO_TIER = (1 << 32) - 1
_T = TypeVar("_T")
_CLOSE_S = 10
# Submissions in flight; more of them wait here, so that the library's queue is never full.
_MOST_FLIGHTS = 1024
# Number of objects of a batch that are looked up in every number of pieces, while the namespace's sizes are unknown.
_PROBES = 4


_NAME_BYTES = DIGEST_BYTES + 12


class Objects:
    """Thread: any. `arena` is memory that all or most items lie in, as one buffer; pieces of several items in it are
    moved by one submission where their distances allow it."""

    def __init__(self, configuration: Configuration, piece_bytes: int, aside: Aside,
                 arena: Optional[memoryview] = None, ask_nodes_ns: int = 0, timeout_ns: int = FOREVER,
                 weigh: bool = True) -> None:
        self.aside = aside
        self.speed = MissedSpeed()  # by bytes: objects are of several sizes
        self._weigh = weigh
        self._timeout_ns = timeout_ns
        self._ask_nodes_ns = ask_nodes_ns
        self.piece_bytes = piece_bytes
        self._arena = arena
        self._arena_extent = (0, 0) if arena is None else raw.buffer_extent(arena)
        self.manager: Manager = configuration.open(piece_bytes)
        self._tenant, self._secret = configuration.tenant, configuration.secret
        self._queue = Queue._of(self.manager._context, 2 * _MOST_FLIGHTS)
        self._spaces: dict[Identity, Namespace] = {}
        self._seen: dict[Namespace, set[int]] = {}
        self._waiting: deque[tuple[Group, bool]] = deque()
        self._lock = threading.Lock()
        self._flying: dict[int, Group] = {}
        self._closing = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="libkvbm-lmcache", daemon=True)
        self._thread.start()

    # ---- names

    def space(self, identity: Identity) -> Namespace:
        """The namespace of an identity, opened once. What is readable of it may be anything that a caller sent; what
        tells namespaces apart is the hash at its end."""
        with self._lock:
            found = self._spaces.get(identity)
            if found is None:
                readable, _, facts = identity.text().rpartition(" ")
                plain = readable.encode("ascii", "replace").decode().replace("\0", "?")[:200]
                found = Namespace(self.manager, f"{plain} {facts}", tenant=self._tenant, secret=self._secret)
                self._spaces[identity] = found
            return found

    def pieces(self, size: int) -> int:
        return max(-(-size // self.piece_bytes), 1)

    def _names(self, digest: bytes, size: int) -> bytes:
        last = self.pieces(size) - 1
        tail = size.to_bytes(8, "little")
        body = b"".join([digest + i.to_bytes(4, "little") + tail for i in range(last)])
        return body + _last_name(digest, last)

    # ---- lookup

    def lookup(self, names: Sequence[Name], sizes: Optional[Sequence[Optional[int]]] = None,
               no_use: bool = False) -> Found:
        """From memory alone. With a size, only an object of that size is found."""
        found = self.call(lambda: self._lookup(names, sizes or [None] * len(names), no_use),
                          Found([0] * len(names), []))
        self.speed.missed(name for name, size in zip(names, found.sizes) if not size)
        return found

    def _lookup(self, names: Sequence[Name], sizes: Sequence[Optional[int]], no_use: bool) -> Found:
        found = Found([0] * len(names), [])
        try:
            for space, members in _by_space(names).items():
                known = [(i, size) for i in members if (size := sizes[i]) is not None]
                unknown = [i for i in members if sizes[i] is None]
                if unknown:
                    known += self._sizes(space, [(i, names[i].digest) for i in unknown])
                self._find(space, names, known, no_use, found)
        except BaseException:
            found.release()
            raise
        return found

    def _find(self, space: Namespace, names: Sequence[Name], known: list[tuple[int, int]], no_use: bool,
              found: Found) -> None:
        if not known:
            return
        wanted = [(i, size, self.pieces(size)) for i, size in known]
        data = b"".join([self._names(names[i].digest, size) for i, size, _ in wanted])
        match = self.manager.lookup(space, Keys.from_hashes(space, data, _NAME_BYTES), mode=Lookup.EACH, no_use=no_use,
                                    ask_nodes_ns=self._ask_nodes_ns)
        if not match:
            return
        rows, at, any_found = match.items(), 0, False
        for i, size, n in wanted:
            mine = rows[at:at + n]
            at += n
            if all(row.tier != _NO_TIER for row in mine) and sum(row.bytes for row in mine) == size:
                found.sizes[i], any_found = size, True
        if any_found:
            found.matches.append(match)
        else:
            match.release()

    def _sizes(self, space: Namespace, wanted: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
        """(index, size) of the objects with a present last piece."""
        seen = self._seen.setdefault(space, set())
        if not seen:
            for _, digest in wanted[:_PROBES]:
                seen.update(n for n, _ in self._lasts(space, [(n, digest) for n in range(1, MOST_PIECES + 1)]))
        asked = [(n, digest, i) for i, digest in wanted for n in sorted(seen)]
        rows = self._lasts(space, [(n, digest) for n, digest, _ in asked], every=True)
        return [(asked[at][2], (asked[at][0] - 1) * self.piece_bytes + size)
                for at, (_, size) in enumerate(rows) if size != 0]

    def _lasts(self, space: Namespace, wanted: list[tuple[int, bytes]], every: bool = False) -> list[tuple[int, int]]:
        """(pieces, bytes of the last one) of those that are there; `every`: 0 bytes for the others."""
        if not wanted:
            return []
        data = b"".join([_last_name(digest, n - 1) for n, digest in wanted])
        with self.manager.lookup(space, Keys.from_hashes(space, data, _NAME_BYTES), mode=Lookup.EACH,
                                 no_use=True) as match:
            rows = match.items() if match else []
        sizes = [0 if row.tier == _NO_TIER else row.bytes for row in rows] or [0] * len(wanted)
        return [(n, size) for (n, _), size in zip(wanted, sizes) if every or size != 0]

    # ---- store, load, delete

    def store(self, items: Sequence[Item], done: Done) -> None:
        """Keeps every object; one that is there already is done at once. `done` says which ones are there."""
        self.speed.stored((item.name, item.view.nbytes) for item in items)
        self._submit(items, done, storing=True)

    def load(self, items: Sequence[Item], done: Done) -> None:
        """Fills the items' memory, every byte verified. What is not said to be good has undefined bytes: it is not there,
        or computing it is quicker."""
        names = [item.name for item in items]

        def loaded(good: list[bool]) -> None:
            self.speed.missed(name for name, ok in zip(names, good) if not ok)
            done(good)

        self._submit(items, loaded, storing=False)

    def delete(self, names: Sequence[Name]) -> list[bool]:
        """Forgets objects in every tier; True where there was one."""
        def body() -> list[bool]:
            found = self._lookup(names, [None] * len(names), True)
            found.release()
            for name, size in zip(names, found.sizes):
                if size:
                    self._drop(name, size)
            return [size != 0 for size in found.sizes]
        return self.call(body, [False] * len(names))

    def _drop(self, name: Name, size: int) -> None:
        keys = Keys.from_hashes(name.space, self._names(name.digest, size), _NAME_BYTES)
        self.manager.drop(name.space, keys)

    def _submit(self, items: Sequence[Item], done: Done, storing: bool) -> None:
        batch = Batch(items, done)
        try:
            groups = self.call(lambda: self._prepare(batch, storing), None)
            if groups is None:
                batch.fail(range(len(items)))
            for group in groups or ():
                batch.more()
                self._launch(group, storing)
        finally:
            batch.less()

    def _prepare(self, batch: Batch, storing: bool) -> list[Group]:
        kept = [i for i, item in enumerate(batch.items) if self._fits(batch, i, item)]
        if storing:
            kept = self._absent(batch.items, kept)
        compute = 0 if storing or not self._weigh else self.speed.block_ns(sum(item.view.nbytes for item in batch.items))
        return self._groups(batch, kept, compute)

    def _fits(self, batch: Batch, i: int, item: Item) -> bool:
        fits = 0 < item.view.nbytes <= self.piece_bytes * MOST_PIECES
        if not fits:
            batch.fail([i])
        return fits

    def _absent(self, items: Sequence[Item], kept: list[int]) -> list[int]:
        """The objects that are not there yet. An object that is there with another size is dropped for the new one."""
        for i in kept:
            self._seen.setdefault(items[i].name.space, set()).add(self.pieces(items[i].view.nbytes))
        names = [items[i].name for i in kept]
        with_size = self._lookup(names, [items[i].view.nbytes for i in kept], False)
        with_size.release()
        left = [i for i, size in zip(kept, with_size.sizes) if size == 0]
        other = self._lookup([items[i].name for i in left], [None] * len(left), True)
        other.release()
        missing = []
        for i, size in zip(left, other.sizes):
            if size == items[i].view.nbytes:
                continue  # another thread's has landed between the two lookups
            if size:
                self._drop(items[i].name, size)
            missing.append(i)
        return missing

    def _groups(self, batch: Batch, kept: list[int], compute_ns: int) -> list[Group]:
        base, extent = self._arena_extent
        parts: dict[tuple[Namespace, int, int, int], list[tuple[int, bytes, int]]] = {}
        for i in kept:
            name, view = batch.items[i]
            address, size = raw.buffer_extent(view)
            inside = base <= address and address + size <= base + extent
            lane = (-1, address % self.piece_bytes) if inside else (i, 0)
            names = self._names(name.digest, size)
            for piece in range(self.pieces(size)):
                at = piece * self.piece_bytes
                part = parts.setdefault((name.space, min(self.piece_bytes, size - at), *lane), [])
                part.append((address + at, names[piece * _NAME_BYTES:(piece + 1) * _NAME_BYTES], i))
        return [self._group(batch, key, part, compute_ns) for key, part in parts.items()]

    def _group(self, batch: Batch, key: tuple[Namespace, int, int, int],
               part: list[tuple[int, bytes, int]], compute_ns: int) -> Group:
        space, page, lane, _ = key
        first = min(address for address, _, _ in part)
        blocks = [(address - first) // self.piece_bytes for address, _, _ in part]
        stride = self.piece_bytes if max(blocks) else page
        if lane < 0:
            assert self._arena is not None
            memory, start = self._arena, first - self._arena_extent[0]
        else:
            memory = batch.items[lane].view
            start = first - raw.buffer_extent(memory)[0]
        return Group(batch, space, memory[start:start + max(blocks) * stride + page], stride, page,
                      b"".join([name for _, name, _ in part]), blocks, [owner for _, _, owner in part],
                     compute_ns)

    def _launch(self, group: Group, storing: bool) -> None:
        """Submits a group, or keeps it until the queue has room. Ends it where the library refuses."""
        with self._lock:
            refused = self._closing
            if not refused and len(self._flying) >= _MOST_FLIGHTS:
                self._waiting.append((group, storing))
                return
            if not refused:
                self._flying[id(group)] = group
        if refused:
            group.end(good=False)
            return
        try:
            started = self._start(group, storing)
        except (KvbmError, OSError, MemoryError) as error:
            started = False
            if not isinstance(error, (NoRoomError, PeerError)):
                self.aside.step(str(error) or type(error).__name__)
        if not started:
            self._landed(group)
            group.end(good=False)

    def _start(self, group: Group, storing: bool) -> bool:
        keys = Keys.from_hashes(group.space, group.names, _NAME_BYTES)
        cache = Cache(self.manager, group.space, max(group.blocks) + 1,
                      tensors=[Tensor(group.memory, group.stride, group.page)], memory=MemoryKind.HOST)
        if storing:
            cache.store_submit(keys, group.blocks, self._queue, user_data=group, unchained=True,
                               timeout_ns=self._timeout_ns)
            return True
        with cache.lookup(keys, mode=Lookup.EACH, no_use=True) as match:
            if match:
                # Each of a batch's submissions may take as long as computing the batch.
                cache.load_submit(match, group.blocks, self._queue, user_data=group, timeout_ns=self._timeout_ns,
                                  compute_block_ns=group.compute_ns // len(group.blocks))
            return bool(match)

    def _landed(self, group: Group) -> None:
        with self._lock:
            self._flying.pop(id(group), None)

    # ---- the thread that takes completions

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._queue.fileno(), select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        end = 0.0
        while True:
            poller.poll(100 if end else None)
            try:
                self._take()
            except KvbmError as error:
                self.aside.step(str(error))
                self._abandon()
                return
            with self._lock:
                if self._closing and not end:
                    end = time.monotonic() + _CLOSE_S
                    poller.unregister(self._wake)
                if self._closing and (not self._flying or time.monotonic() > end):
                    return

    def _take(self) -> None:
        while True:
            completions = self._queue.poll()
            for completion in completions:
                group: Group = completion.user_data
                self._landed(group)
                status = completion.item_status if completion.status >= 0 else None
                group.end(completion.status == 0, status)
            for _ in completions:
                with self._lock:
                    waiting = self._waiting.popleft() if self._waiting else None
                if waiting is None:
                    break
                self._launch(*waiting)
            if not completions:
                return

    def _abandon(self) -> None:
        """Fails all objects in flight and waiting, because completions are not taken any more."""
        with self._lock:
            groups = [*self._flying.values(), *[group for group, _ in self._waiting]]
            self._flying.clear()
            self._waiting.clear()
        for group in groups:
            group.end(good=False)

    # ---- the object

    def call(self, body: Callable[[], _T], fallback: _T) -> _T:
        """Aside.call; the fallback also once this is closed."""
        return fallback if self._closing else self.aside.call(body, fallback)

    def stats(self) -> Optional[Stats]:
        return self.call(lambda: self.manager.stats(), None)

    def close(self) -> None:
        """Waits for what is in flight, ends what waits to start (its items have failed), brings what was stored to the
        disks, and closes the tiers. Twice is fine."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            waiting = [group for group, _ in self._waiting]
            self._waiting.clear()
        for group in waiting:
            group.end(good=False)
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._queue.close()
        self._abandon()
        self.aside.call(lambda: self.manager.flush(_CLOSE_S * 10**9), 0)
        for space in self._spaces.values():
            space.close()
        self.manager.close()
        os.close(self._wake)


def _last_name(digest: bytes, index: int) -> bytes:
    return digest + index.to_bytes(4, "little") + _LAST


def _by_space(names: Sequence[Name]) -> dict[Namespace, list[int]]:
    groups: dict[Namespace, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(name.space, []).append(i)
    return groups
