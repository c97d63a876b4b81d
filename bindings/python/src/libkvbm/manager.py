"""Managers: one owner of one set of tiers, and everything that is done with its blocks."""
from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple, Optional, Sequence

from . import _native as raw
from . import _raw
from .block import Blocks
from .constants import FOREVER, Admit, CodecMode, Lookup, Priority, TierNumber, status_of
from .errors import DeadlineError, invalid
from .geometry import Part, closed, part_memory, parts_memory
from .key import Keys, as_keys
from .match import Match, lookup_options
from .memory import read_text, shown, text
from .dispatch import Completion
from .queue import Operation, Queue, submit, submit_async, submit_future
from .stats import DeviceMoves, DeviceRow, Location, Locations, NodeRow, ScanRow, Share, Stats, share_of, stats_of
from .store import Service, Store

if TYPE_CHECKING:
    from .context import Context
    from .key import KeysLike
    from .namespace import Namespace

_PAGE = 256
# How long a wait stays in the library at a time, so that signals (Ctrl-C) are seen between.
_SLICE_S = 0.2


@dataclass(frozen=True)
class Tier:
    """A tier below host memory. It has one of `path`, `url` and `store`: a disk's directory; a store outside this host,
    as s3://bucket/prefix?region=... or file:///mnt/shared/kv (docs/stores.md); or a store that is a Python object."""

    path: Optional[str] = None
    capacity_bytes: int = 0  # hard cap of everything in the directory or store; of a store 0 = no cap
    admission: Admit = Admit.ALL
    admission_uses: int = 0
    write_bytes_per_s: int = 0
    read_bytes_per_s: int = 0
    codec: Optional[str] = None  # how records are coded: "off", "auto" or the name of a lossless CodecMode
    codec_goal: int = 0  # goal of "auto"; 0: blocks are onboarded sooner, 1: more blocks fit
    url: Optional[str] = None
    store: Optional[Store] = None
    options: Optional[Mapping[str, str]] = None  # of `store`, what a URL has behind '?': {"poll": "100ms"}

    def __post_init__(self) -> None:
        given = [name for name in ("path", "url", "store") if getattr(self, name) is not None]
        if len(given) != 1:
            said = "none of them" if not given else " and ".join(given)
            raise invalid(f"a tier has a path (a disk), a url (a store) or a store (a Python object); this has {said}")
        if self.options is not None and self.store is None:
            raise invalid("a tier has options beside a store: a url has its own, behind '?'")


class Pin(NamedTuple):
    """A pin, and how many leading keys it keeps."""

    number: int
    keys: int


class Manager:
    """One owner of one set of tiers. 0 and None mean: as the configuration says. Thread: any.

    close() ends this reference. The tiers are closed, and waited for, when the last of the manager, its namespaces,
    caches, matches and blocks has gone.
    """

    __slots__ = ("_handle", "_context", "_queue", "_queue_lock", "block_bytes", "__weakref__")

    def __init__(self, context: Context, *, block_bytes: int = 0, host_capacity_bytes: int = 0,
                 host_file: Optional[str] = None, policy: Optional[str] = None,
                 tiers: Optional[Sequence[Tier]] = None, share: bool = False) -> None:
        options = _raw.kvbm_manager_options_t()
        options.block_bytes, options.host_capacity_bytes = block_bytes, host_capacity_bytes
        options.flags = raw.KVBM_MANAGER_SHARE if share else 0
        names = (text(host_file, "host_file"), text(policy, "policy"))
        options.host_file, options.policy = names
        services: list[Service] = []
        try:
            services += (Service(tier.store) for tier in tiers or () if tier.store is not None)
            memory, texts = _tiers(tiers or (), services)
            if tiers:
                options.tiers, options.n_tiers = memory, len(tiers)
            self._handle: Optional[raw.Handle] = raw.kvbm_manager_create(context._handle, options)[1]
            del texts  # kept until here
        except BaseException:
            for service in services:
                service.abandon()
            raise
        self._context = context._handle
        self._queue: Optional[Queue] = None
        self._queue_lock = threading.Lock()
        self.block_bytes = block_bytes

    # ---- the managed pool

    def allocate(self, ns: Namespace, n_blocks: int) -> Blocks:
        """Takes n Partial blocks, all or none, evicting what nothing holds if need be."""
        manager = self._handle  # another thread may close it during the call
        return Blocks(manager, raw.kvbm_manager_allocate(manager, ns._handle, n_blocks, None)[1], writable=True)

    def allocate_evicting(self, ns: Namespace, n_blocks: int, capacity: int = 1024) -> tuple[Blocks, Keys, int]:
        """As allocate; also up to `capacity` keys of blocks that were evicted for it, and how many were."""
        manager, room = self._handle, raw.Memory(capacity * 16)
        _, ids, n = raw.kvbm_manager_allocate(manager, ns._handle, n_blocks, room)
        return Blocks(manager, ids, writable=True), Keys(memoryview(room)[:min(n, capacity) * 16]), n

    # ---- lookup

    def lookup(self, ns: Namespace, keys: KeysLike, *, mode: Lookup = Lookup.PREFIX,
               parts: Optional[Sequence[Part]] = None, host_only: bool = False, no_use: bool = False,
               unit_keys: Optional[KeysLike] = None, ask_nodes_ns: int = 0) -> Match:
        """Finds blocks in every tier, from memory alone unless nodes are asked."""
        names = as_keys(keys)
        options, kept = lookup_options(mode, parts, host_only, no_use, unit_keys, ask_nodes_ns)
        _, handle, hits = raw.kvbm_manager_lookup(self._handle, ns._handle, names, options)
        return Match(self, names, handle, hits)

    def locate(self, ns: Namespace, keys: KeysLike, *, parts: Optional[Sequence[Part]] = None,
               request_keys: Optional[Sequence[int]] = None, ask_nodes_ns: int = 0) -> Locations:
        """Which node has the longest prefix of each request, and in which tiers. `request_keys` says how many of the
        keys each request has; None = all are one request's."""
        names = as_keys(keys)
        options = _raw.kvbm_locate_options_t()
        options.ask_nodes_ns = ask_nodes_ns
        kept: list[raw.Memory] = []
        if parts is not None:
            kept.append(parts_memory(parts))
            options.parts, options.n_parts = kept[-1], len(parts)
        if request_keys is not None:
            counts = b"".join(n.to_bytes(8, "little") for n in request_keys)
            kept.append(raw.Memory(counts or bytes(8), format="Q"))
            options.request_keys, options.n_requests = kept[-1], len(request_keys)
        capacity = 64
        while True:
            status, n, rows = raw.kvbm_manager_locate(self._handle, ns._handle, names, options, capacity)
            if n <= capacity:
                found = Locations(Location(node, request, TierNumber(tier), *rest) for node, request, tier, *rest in rows)
                found.status = status_of(status)
                return found
            capacity = n

    # ---- care of what is cached

    def prefetch(self, ns: Namespace, keys: KeysLike, *, part: Optional[Part] = None) -> int:
        """Brings blocks up into the host tier; returns the status (OK or PARTIAL) when they are there."""
        return status_of(self._move(ns, keys, part, None)(None, 0, None))

    def prefetch_async(self, ns: Namespace, keys: KeysLike, *, part: Optional[Part] = None,
                       queue: Optional[Queue] = None) -> asyncio.Future[Completion]:
        return submit_async(queue or self.queue(), self._move(ns, keys, part, None), statuses=None, keep=self._handle,
                            cancellable=False)

    def prefetch_future(self, ns: Namespace, keys: KeysLike, *, part: Optional[Part] = None,
                        queue: Optional[Queue] = None) -> concurrent.futures.Future[Completion]:
        return submit_future(queue or self.queue(), self._move(ns, keys, part, None), statuses=None, keep=self._handle,
                             cancellable=False)

    def prefetch_submit(self, ns: Namespace, keys: KeysLike, queue: Queue, *, part: Optional[Part] = None,
                        user_data: Any = None) -> Operation:
        return submit(queue, self._move(ns, keys, part, None), user_data=user_data, statuses=None, keep=self._handle)

    def offload(self, ns: Namespace, keys: KeysLike, tier: int = 1, *, part: Optional[Part] = None) -> int:
        """Copies host blocks to tier `tier` (1 = the first below) now; returns the status when they are there."""
        return status_of(self._move(ns, keys, part, tier)(None, 0, None))

    def offload_async(self, ns: Namespace, keys: KeysLike, tier: int = 1, *, part: Optional[Part] = None,
                      queue: Optional[Queue] = None) -> asyncio.Future[Completion]:
        return submit_async(queue or self.queue(), self._move(ns, keys, part, tier), statuses=None, keep=self._handle,
                            cancellable=False)

    def offload_future(self, ns: Namespace, keys: KeysLike, tier: int = 1, *, part: Optional[Part] = None,
                       queue: Optional[Queue] = None) -> concurrent.futures.Future[Completion]:
        return submit_future(queue or self.queue(), self._move(ns, keys, part, tier), statuses=None, keep=self._handle,
                             cancellable=False)

    def offload_submit(self, ns: Namespace, keys: KeysLike, queue: Queue, tier: int = 1, *,
                       part: Optional[Part] = None, user_data: Any = None) -> Operation:
        return submit(queue, self._move(ns, keys, part, tier), user_data=user_data, statuses=None, keep=self._handle)

    def drop(self, ns: Namespace, keys: KeysLike, *, part: Optional[Part] = None) -> int:
        """Forgets blocks in every tier; returns how many were in the host tier."""
        n: int = raw.kvbm_manager_drop(self._handle, ns._handle, part_memory(part), as_keys(keys))[1]
        return n

    def hint(self, ns: Namespace, keys: KeysLike, priority: Priority, *, part: Optional[Part] = None) -> None:
        """Tells the policies what is known of blocks. Absent keys are ignored."""
        raw.kvbm_manager_hint(self._handle, ns._handle, part_memory(part), as_keys(keys), priority)

    def pin(self, ns: Namespace, keys: KeysLike, owner: int, timeout_ns: int = FOREVER, *,
            part: Optional[Part] = None) -> Pin:
        """Keeps host blocks resident for `owner` until timeout_ns from now or until unpinned."""
        names, which = as_keys(keys), part_memory(part)
        _, number, n = raw.kvbm_manager_pin(self._handle, ns._handle, which, names, owner, timeout_ns)
        return Pin(number, n)

    def unpin(self, pin: Pin) -> None:
        """Ends a pin early."""
        raw.kvbm_manager_unpin(self._handle, pin.number)

    def unpin_owner(self, owner: int) -> int:
        """Ends every pin of an owner; returns how many."""
        n: int = raw.kvbm_manager_unpin_owner(self._handle, owner)[1]
        return n

    def flush(self, timeout_ns: int = FOREVER, *, durable: bool = False) -> int:
        """Waits until no offload is queued or in flight; raises DeadlineError if it takes longer. Returns OK, or
        PARTIAL if a tier, or a shared tier set, did not accept some blocks. With `durable` it also syncs the disks, so
        their contents survive a power loss. PARTIAL then also means that a sync failed: those records have left the
        disk, and the next flush sends them again. UnsupportedError: no tier below host memory, or a plug-in tier."""
        if durable:
            return status_of(raw.kvbm_manager_flush_durable(self._handle, timeout_ns))
        return status_of(raw.kvbm_manager_flush(self._handle, timeout_ns))

    def reset(self) -> None:
        """Forgets every block of every tier that nothing holds."""
        raw.kvbm_manager_reset(self._handle)

    # ---- seeing it work

    def stats(self) -> Stats:
        counters = _raw.kvbm_manager_stats_t()
        raw.kvbm_manager_stats(self._handle, counters)
        return stats_of(counters)

    def metrics(self) -> str:
        """All metrics as Prometheus text exposition."""
        return read_text(raw.kvbm_manager_metrics, self._handle)

    def subscribe(self, queue: Optional[Queue]) -> None:
        """Sends block events to a queue (None = stop). One queue per manager."""
        raw.kvbm_manager_subscribe(self._handle, None if queue is None else queue_handle(queue))

    def scan(self) -> Iterator[ScanRow]:
        """Lists blocks and records, one page at a time, without stopping any work."""
        cursor = 0
        while True:
            _, cursor, _, rows = raw.kvbm_manager_scan(self._handle, cursor, _PAGE)
            yield from (ScanRow(key, ns, size, TierNumber(tier), *rest) for key, ns, size, tier, *rest in rows)
            if cursor == 0:
                return

    # ---- nodes and sharing

    def nodes(self) -> list[NodeRow]:
        """The nodes that are connected and the addresses that are not."""
        capacity = 64
        while True:
            _, n, rows = raw.kvbm_manager_nodes(self._handle, capacity)
            if n <= capacity:
                return [NodeRow._make((*said, CodecMode(codec), bool(automatic), bool(sealed), refused, plain, stored))
                        for *said, codec, automatic, sealed, refused, plain, stored in rows]
            capacity = n

    def wait_for_peers(self, timeout: Optional[float] = None) -> None:
        """Waits until every address of node.peers is a connected node that has reported its contents. The first lookup
        that asks nodes then asks all of them. `timeout` is in seconds, None = for ever. DeadlineError, a TimeoutError,
        names the addresses that are not connected by then, and the reasons. UnavailableError names those that refuse
        this node. Returns at once without node.peers."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE_S if end is None else max(0.0, min(_SLICE_S, end - time.monotonic()))
            try:
                raw.kvbm_manager_wait_for_peers(self._handle, int(left * 1e9))
                return
            except DeadlineError:
                if end is not None and time.monotonic() >= end:
                    raise

    def devices(self) -> list[DeviceRow]:
        """The devices that caches of this manager were attached on."""
        capacity = 16
        while True:
            _, n, rows = raw.kvbm_manager_devices(self._handle, capacity)
            if n <= capacity:
                return [DeviceRow._make((ordinal, bool(lost), *said, DeviceMoves._make(out), DeviceMoves._make(into)))
                        for ordinal, lost, *said, out, into in rows]
            capacity = n

    def node_address(self) -> str:
        """The address on which this manager listens, with the port that it got; empty if it does not."""
        return read_text(raw.kvbm_manager_node_address, self._handle)

    def share(self) -> Share:
        """Returns the role of this process in a shared tier set."""
        row = _raw.kvbm_share_t()
        raw.kvbm_manager_share(self._handle, row)
        return share_of(row)

    # ---- the object

    def queue(self) -> Queue:
        """The queue of calls that are not given one; made at first use."""
        with self._queue_lock:
            if self._queue is None:
                if self._handle is None:
                    raise closed("manager", "and its queue with it; give the call a queue of your own")
                self._queue = Queue._of(self._context, 4096)
            return self._queue

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Ends this reference, and what is in flight on its own queue. Twice is fine."""
        self._handle = None
        with self._queue_lock:
            queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()

    def __repr__(self) -> str:
        return shown(self, self.closed, block_bytes=self.block_bytes)

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def _move(self, ns: Namespace, keys: KeysLike, part: Optional[Part], tier: Optional[int]) -> Any:
        names, which = as_keys(keys), part_memory(part)
        manager, space = self._handle, ns._handle

        def call(queue: Optional[raw.Handle], token: int, number: Optional[raw.Memory]) -> int:
            if tier is None:
                return raw.kvbm_manager_prefetch(manager, space, which, names, queue, token)
            return raw.kvbm_manager_offload(manager, space, which, names, tier, queue, token)

        return call


def queue_handle(queue: Queue) -> raw.Handle:
    queue.fileno()  # raises that it is closed
    handle = queue._core.handle
    assert handle is not None
    return handle


def _tiers(tiers: Sequence[Tier], services: Sequence[Service]) -> tuple[raw.Memory, list[Optional[bytes]]]:
    """The array of kvbm.h, and the texts that it points to. `services` are those of the tiers that are Python's."""
    memory = raw.Memory(raw.kvbm_tier_t_size * max(len(tiers), 1))
    serving = iter(services)
    paths = [text(None if tier.path is None else str(tier.path), "path") for tier in tiers]
    urls = [text(tier.url if tier.store is None else next(serving).url(tier.options or {}), "url") for tier in tiers]
    codecs = [text(tier.codec, "codec") for tier in tiers]
    for i, tier in enumerate(tiers):
        item = raw.kvbm_tier_t_at(memory, i)
        item.path, item.url = paths[i], urls[i]
        if tier.store is not None:
            item.serve_python()
        item.capacity_bytes = tier.capacity_bytes
        item.admission, item.admission_uses = tier.admission, tier.admission_uses
        item.write_bytes_per_s, item.read_bytes_per_s = tier.write_bytes_per_s, tier.read_bytes_per_s
        item.codec, item.codec_goal = codecs[i], tier.codec_goal
    return memory, paths + urls + codecs
