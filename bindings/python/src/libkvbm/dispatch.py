"""Takes completions from the library and passes them on; the inner part of queue.py."""
from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

from . import _native as raw
from .constants import EventKind, TierNumber, op_of, status_names, status_of
from .errors import KvbmError, error_of

# How long a wait stays in the library at a time, so that signals (Ctrl-C) are seen between.
SLICE_NS = 200_000_000
# Time that the end of a queue waits for cancelled operations that still write statuses.
_DRAIN_S = 10.0
BATCH = 64
_EVENTS = 65_536
_T = TypeVar("_T")


class Completion(NamedTuple):
    """Result of one accepted submission."""

    user_data: Any
    operation: int
    op: int
    status: int  # Status.OK, Status.PARTIAL, or why nothing was done
    items_done: int
    items: int
    bytes: int
    wait_ns: int
    service_ns: int
    item_status: Optional[memoryview] = None  # one status an item, of calls that have them

    def __repr__(self) -> str:
        items = "" if self.item_status is None else f", item_status={status_names(self.item_status)}"
        return (f"Completion(user_data={self.user_data!r}, operation={self.operation}, op={self.op}, status={self.status}, "
                f"items_done={self.items_done}, items={self.items}, bytes={self.bytes}, wait_ns={self.wait_ns}, "
                f"service_ns={self.service_ns}{items})")

    def check(self) -> Completion:
        """Raises what the status says, if it is an error."""
        if self.status < 0:
            raise failure(self)
        return self


class Event(NamedTuple):
    """A block changed its place. Sequences run from 1 without gaps; a gap means that events were lost."""

    sequence: int
    kind: int
    tier: int
    namespace_id: bytes
    key: bytes
    parent: bytes
    component: int


def event_of(row: tuple[Any, ...]) -> Event:
    sequence, kind, tier, *rest = row
    return Event._make((sequence, EventKind(kind) if kind in _EVENT_KINDS else kind, TierNumber(tier), *rest))


_EVENT_KINDS = frozenset(map(int, EventKind))
_Future = Union["asyncio.Future[Completion]", "concurrent.futures.Future[Completion]"]


class Pending:
    """One submission: memory that the library still writes or borrows, and the waiting future."""

    __slots__ = ("user_data", "number", "statuses", "keep", "future", "loop", "cancellable", "on_layer")

    def __init__(self, user_data: Any, statuses: Optional[raw.Memory], keep: Any, cancellable: bool) -> None:
        self.user_data = user_data
        self.number = raw.Memory(8, format="Q")
        self.statuses = statuses
        self.keep = keep
        self.cancellable = cancellable
        self.future: Optional[_Future] = None
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.on_layer: Optional[Callable[[Completion], object]] = None


# Memory of submissions on queues that could not be drained: the library may still write there.
_never_freed: list[Optional[raw.Memory]] = []


class Core:
    """The part of a queue that outlives it until the last operation has ended. It knows no Queue, so that one that is
    forgotten is collected."""

    def __init__(self, handle: raw.Handle) -> None:
        self.handle: Optional[raw.Handle] = handle
        self.fd: int = raw.kvbm_queue_fd(handle)
        self.lock = threading.Lock()
        self.pending: dict[int, Pending] = {}
        self.tokens = itertools.count(1)
        self.unclaimed: deque[Completion] = deque()
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        self.watching: dict[asyncio.AbstractEventLoop, int] = {}
        self.threaded = 0
        self.pid = os.getpid()
        self.thread: Optional[threading.Thread] = None

    def submit(self, pending: Pending, call: Callable[[raw.Handle, int], Any]) -> Any:
        """call(queue, token) submits. It may complete before it returns, so the entry is made first."""
        if self.handle is None:
            raise error_of(raw.KVBM_ERR_STALE, "the queue is closed")
        token = next(self.tokens)
        with self.lock:
            self.pending[token] = pending
        try:
            return call(self.handle, token)
        except BaseException:
            with self.lock:
                self.pending.pop(token, None)
            raise

    def take(self, rows: list[Any]) -> list[Completion]:
        """Hands completions to their futures and returns the others."""
        returned: list[Completion] = []
        for row in rows:
            is_layer = row[2] == raw.KVBM_OP_LAYER
            with self.lock:
                pending = self.pending.get(row[0]) if is_layer else self.pending.pop(row[0], None)
            if pending is None:
                continue
            items = None if pending.statuses is None else memoryview(pending.statuses)
            number, op, status, *counts = row[1:]
            completion = Completion._make((pending.user_data, number, op_of(op), status_of(status), *counts,
                                           None if is_layer else items))
            if pending.future is None and pending.on_layer is None:
                returned.append(completion)
            else:
                self._deliver(pending, completion, is_layer)
        return returned

    def _deliver(self, pending: Pending, completion: Completion, is_layer: bool) -> None:
        if pending.loop is not None:
            try:
                if pending.loop is asyncio._get_running_loop():
                    self._settle(pending, completion, is_layer)
                else:
                    pending.loop.call_soon_threadsafe(self._settle, pending, completion, is_layer)
            except RuntimeError:
                pass  # the loop was closed: no task waits any more
            return
        if not is_layer:
            with self.lock:
                self.threaded -= 1
        self._resolve(pending, completion, is_layer)

    def _settle(self, pending: Pending, completion: Completion, is_layer: bool) -> None:
        """In the loop's own thread."""
        if not is_layer and pending.loop is not None:
            self._unwatch(pending.loop)
        self._resolve(pending, completion, is_layer)

    @staticmethod
    def _resolve(pending: Pending, completion: Completion, is_layer: bool) -> None:
        if is_layer:
            if pending.on_layer is not None:
                pending.on_layer(completion)
            return
        # A future's callbacks know the entry, which would otherwise keep the cache in a cycle.
        future, pending.future, pending.keep, pending.on_layer = pending.future, None, None, None
        if future is None or future.done():
            return
        try:
            if completion.status < 0:
                future.set_exception(failure(completion))
            else:
                future.set_result(completion)
        except (asyncio.InvalidStateError, concurrent.futures.InvalidStateError):
            pass  # cancelled in this moment

    def poll(self, capacity: int) -> list[Completion]:
        if self.handle is None:
            raise error_of(raw.KVBM_ERR_STALE, "the queue is closed")
        return self.take(raw.kvbm_queue_poll(self.handle, capacity)[1])

    # ---- asyncio: the loop watches the descriptor while something of it is in flight

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        with self.lock:
            n = self.watching.get(loop, 0)
            self.watching[loop] = n + 1
        if n == 0:
            loop.add_reader(self.fd, self._readable)

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        with self.lock:
            n = self.watching.get(loop, 0) - 1
            if n > 0:
                self.watching[loop] = n
            else:
                self.watching.pop(loop, None)
        if n == 0 and not loop.is_closed():
            loop.remove_reader(self.fd)

    def _readable(self) -> None:
        if self.handle is None:
            return
        while True:
            rows = raw.kvbm_queue_poll(self.handle, BATCH)[1]
            self.unclaimed.extend(self.take(rows))
            if len(rows) < BATCH:
                break
        # Events keep the descriptor readable until they are taken.
        self.buffer_events()

    def buffer_events(self) -> None:
        while self.handle is not None:
            rows = raw.kvbm_queue_poll_events(self.handle, BATCH)[1]
            self.events.extend(map(event_of, rows))
            if len(rows) < BATCH:
                return

    # ---- plain futures: a thread takes completions while there are some to come

    def drive(self) -> None:
        with self.lock:
            self.threaded += 1
            if self.thread is not None:
                return
            self.thread = threading.Thread(target=self._run, name="libkvbm-queue", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            handle = self.handle
            with self.lock:
                busy = self.threaded > 0
                if handle is None or (not busy and time.monotonic() - idle_since > 1.0):
                    self.thread = None
                    return
            if busy:
                idle_since = time.monotonic()
            try:
                rows = raw.kvbm_queue_wait(handle, BATCH, SLICE_NS // 4)[1]
            except KvbmError:
                return
            try:
                self.unclaimed.extend(self.take(rows))
            except Exception:  # a caller's on_layer
                sys.excepthook(*sys.exc_info())

    # ---- the end

    def drain(self) -> None:
        """Cancels what is in flight and waits until the library writes to none of its memory any more."""
        handle, end = self.handle, time.monotonic() + _DRAIN_S
        if handle is None:
            return
        if os.getpid() != self.pid:
            self.handle = None  # a forked child: nothing is in flight here, and the loops are the parent's
            return
        try:
            with self.lock:
                waiting = list(self.pending.values())
            for pending in waiting:
                number = int(memoryview(pending.number)[0])
                if number and pending.cancellable:
                    cancel(handle, number)
            while time.monotonic() < end and any(p.cancellable for p in list(self.pending.values())):
                self.take(raw.kvbm_queue_wait(handle, BATCH, SLICE_NS // 10)[1])
        except KvbmError:
            pass
        with self.lock:
            waiting = list(self.pending.values())
            for pending in waiting:
                _never_freed.extend((pending.number, pending.statuses))
            self.pending.clear()
        for pending in waiting:
            if pending.future is not None:
                self._deliver(pending, gone(pending), False)
        for loop in list(self.watching):
            try:
                loop.call_soon_threadsafe(loop.remove_reader, self.fd)
            except RuntimeError:
                pass
        self.handle = None


def cancel(handle: raw.Handle, number: int) -> None:
    try:
        raw.kvbm_queue_cancel(handle, number)
    except KvbmError:
        pass  # completed already


def front(items: deque[_T], n: int) -> list[_T]:
    """Takes up to n items; other threads may take some meanwhile."""
    taken: list[_T] = []
    try:
        while len(taken) < n:
            taken.append(items.popleft())
    except IndexError:
        pass
    return taken


def failure(completion: Completion) -> KvbmError:
    error = error_of(completion.status)
    error.item_status = completion.item_status
    return error


def gone(pending: Pending) -> Completion:
    return Completion(pending.user_data, 0, 0, raw.KVBM_ERR_CANCELLED, 0, 0, 0, 0, 0, None)
