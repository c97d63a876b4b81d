"""libkvbm's own events in an engine's format."""
from __future__ import annotations

import os
import select
import threading
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Protocol, Sequence, Union

from ..constants import EventKind
from ..engine import ConfigurationError
from ..errors import KvbmError
from ..key import as_keys
from ..queue import Queue
from .kinds import SGLANG_MEDIUMS, VLLM_MEDIUMS, Event, Hash, sglang_hash, vllm_hash
from .registry import About, Described, Registry, Teller, tokens_of

if TYPE_CHECKING:
    from ..key import KeysLike
    from ..manager import Manager
    from ..namespace import Namespace

_BATCH = 256
_HASHES: Mapping[str, Callable[[bytes], Hash]] = {"vllm": vllm_hash, "sglang": sglang_hash, "bytes": bytes}
_MEDIUMS = {"vllm": VLLM_MEDIUMS, "sglang": SGLANG_MEDIUMS, "bytes": VLLM_MEDIUMS}


class Sink(Protocol):
    def publish(self, events: Sequence[Event]) -> object: ...


@dataclass(frozen=True)
class SourceCounts:
    described: int
    """Blocks that are described now."""
    undescribed: int
    """Stored blocks without a description, which are not reported."""
    forgotten: int
    """Described blocks that were reported as removed because there were more than the limit."""
    lost: int
    """Events of the manager that were not read in time; what is where was read anew."""


class EventSource:
    """Turns a manager's events into an engine's, for blocks that were described. A manager has one source.

    sink      a Publisher, or another object with publish(events); start() feeds it from a thread. None: the caller
    calls
              take() when the engine asks for events
    hashes    "vllm": the last 8 bytes of the engine's hash; "sglang": the first 8, signed; "bytes": all bytes
    mediums   tier -> name; other tiers send no events. By default the names of the engine
    limit     maximum number of described blocks
    whole     only this source uses the stream: AllBlocksCleared may be sent. False if the engine sends its own blocks
              with the same publisher; then each block is named
    """

    def __init__(self, manager: Manager, sink: Optional[Sink] = None, *, hashes: str = "vllm",
                 mediums: Optional[Mapping[int, str]] = None, limit: int = 1 << 18, whole: bool = True,
                 locality: Optional[str] = None, ownership: Optional[str] = None) -> None:
        if hashes not in _HASHES:
            raise ConfigurationError(f"hashes is {hashes!r}: vllm, sglang or bytes")
        self._manager, self._sink, self._hash = manager, sink, _HASHES[hashes]
        self._registry = Registry(_MEDIUMS[hashes] if mediums is None else mediums, limit, whole,
                                  lambda: Teller(locality, ownership))
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._next: Optional[int] = None
        self._lost = 0
        self._thread: Optional[threading.Thread] = None
        self._ending = self._closing = False
        self._queue = Queue._of(manager._context, 1)
        try:
            manager.subscribe(self._queue)
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except BaseException:
            self._queue.close()
            raise

    # ---- for plug-ins

    def describe(self, ns: Namespace, keys: KeysLike, hashes: Sequence[Union[bytes, int]], *,
                 parent: Optional[Union[bytes, int]] = None, tokens: Optional[Sequence[Any]] = None,
                 block_size: int = 0, extra_keys: Optional[Sequence[Any]] = None, lora_id: Optional[int] = None,
                 lora_name: Optional[str] = None, group_idx: Optional[int] = None,
                 kv_cache_spec_kind: Optional[str] = None, kv_cache_spec_sliding_window: Optional[int] = None,
                 session_id: Optional[str] = None, cache_salt: Optional[str] = None, components: int = 1) -> None:
        """Describes blocks: keys[i] is the engine's block hashes[i], and each block is the next one's parent.

        Call it before or after the store: the event is sent when a block is both stored and described. `parent` is the
        hash of the block before the first. `tokens` are those of all blocks (block_size each), or None: then routers
        that hash tokens themselves cannot use the events. A block is in a tier when all its `components` are. Never
        blocks."""
        names = as_keys(keys)
        if len(names) != len(hashes) or (tokens is not None and len(tokens) != len(hashes) * block_size):
            raise ValueError(f"{len(names)} keys, {len(hashes)} hashes, {0 if tokens is None else len(tokens)} tokens "
                             f"of blocks of {block_size}: they do not fit")
        about = About(block_size, lora_id, lora_name, group_idx, kv_cache_spec_kind, kv_cache_spec_sliding_window,
                      session_id, cache_salt, None, components)
        before = None if parent is None else self._short(parent)
        with self._lock:
            for at, key in enumerate(names):
                mine = about if extra_keys is None else replace(about, extra_key=extra_keys[at])
                short = self._short(hashes[at])
                self._registry.describe(ns.id + key, Described(short, before, tokens_of(tokens, at, block_size), mine,
                                                               {}))
                before = short
            pending = self._registry.pending
        if pending:
            os.eventfd_write(self._wake, 1)

    def take(self) -> list[Event]:
        """Takes the events since the last call. Thread: any; not with start()."""
        told: list[Event] = []
        with self._taking:
            while not self._closing:
                events = self._queue.poll_events(_BATCH)
                told += self._convert(events)
                if len(events) < _BATCH:
                    break
        return told

    def restate(self) -> None:
        """Reads what is where anew: at the start, for what a disk tier has from before."""
        places = [(row.namespace_id + row.key, row.component, row.tier) for row in self._manager.scan()]
        with self._lock:
            self._registry.settle(places)

    def start(self) -> None:
        """Reads what is where, and feeds the sink from a thread from then on."""
        if self._sink is None:
            raise ConfigurationError("an event source without a sink is asked with take()")
        if self._thread is None:
            self.restate()
            os.eventfd_write(self._wake, 1)
            self._thread = threading.Thread(target=self._run, name="kvbm-event-source", daemon=True)
            self._thread.start()

    @property
    def counts(self) -> SourceCounts:
        with self._lock:
            return SourceCounts(len(self._registry), self._registry.undescribed, self._registry.forgotten, self._lost)

    def close(self) -> None:
        """Ends the subscription after sending all events until now. May be called twice."""
        if self._closing:
            return
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ending = True
            os.eventfd_write(self._wake, 1)
            thread.join()
        with self._taking:
            self._closing = True
            try:
                self._manager.subscribe(None)
            except KvbmError:
                pass  # the manager was closed before
            self._queue.close()
        os.close(self._wake)

    def __enter__(self) -> EventSource:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    # ---- events

    def _short(self, digest: Union[bytes, int]) -> Hash:
        return digest if isinstance(digest, int) else self._hash(digest)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._queue.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        assert self._sink is not None
        while True:
            ending = self._ending
            if not ending:
                poll.poll(1000)
            try:
                os.eventfd_read(self._wake)
            except BlockingIOError:
                pass
            events = self.take()
            if events:
                self._sink.publish(events)
            if ending:
                return

    def _convert(self, events: Sequence[Any]) -> list[Event]:
        told: list[Event] = []
        anew = False
        with self._lock:
            for event in events:
                if self._next is not None and event.sequence != self._next:
                    self._lost += event.sequence - self._next
                    anew = True
                self._next = event.sequence + 1
                if event.kind == EventKind.STORED:
                    self._registry.stored((event.namespace_id + event.key, event.component, event.tier))
                elif event.kind == EventKind.REMOVED:
                    self._registry.removed((event.namespace_id + event.key, event.component, event.tier))
                elif event.kind == EventKind.DISABLED:
                    self._registry.lost_tier(event.tier)
                elif event.kind == EventKind.CLEARED:
                    self._registry.cleared(event.namespace_id)
                else:  # of a later library: what it did is seen by looking
                    anew = True
            told = self._registry.take()
        if anew:
            self.restate()
            with self._lock:
                told += self._registry.take()
        return told
