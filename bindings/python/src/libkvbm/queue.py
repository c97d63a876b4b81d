"""Queues: where operations in flight report, and how they become futures.

Every accepted submission gives one completion. Whoever takes completions from the library (an event loop that watches
the queue's descriptor, the thread behind plain futures, or a caller of poll and wait) hands each to its future;
those of submissions without a future are returned to callers of poll and wait.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import sys
import threading
import time
import weakref
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, TypeVar, Union

from . import _native as raw
from .constants import FOREVER
from .errors import KvbmError, error_of

if TYPE_CHECKING:
    from .context import Context

# How long a wait stays in the library at a time, so that signals (Ctrl-C) are seen between.
_SLICE_NS = 200_000_000
# What is waited at the end of a queue for operations that still write statuses; they were cancelled before.
_DRAIN_S = 10.0
_BATCH = 64
_EVENTS = 65_536
_T = TypeVar("_T")


class Completion(NamedTuple):
    """What became of one accepted submission."""

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

    def check(self) -> Completion:
        """Raises what the status says, if it is an error."""
        if self.status < 0:
            raise _failure(self)
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


class Operation:
    """A submission that was given a queue: poll() or wait() of it returns the completion."""

    __slots__ = ("_core", "_number", "user_data", "item_status")

    def __init__(self, core: _Core, number: raw.Memory, user_data: Any, item_status: Optional[memoryview]) -> None:
        self._core = core
        self._number = number
        self.user_data = user_data
        self.item_status = item_status

    @property
    def number(self) -> int:
        return int(memoryview(self._number)[0])

    def cancel(self) -> None:
        """Asks that it ends early; the completion still comes. ClosedError if it has come."""
        raw.kvbm_queue_cancel(self._core.handle, self.number)


_Future = Union["asyncio.Future[Completion]", "concurrent.futures.Future[Completion]"]


class _Pending:
    """One submission: what the library still writes to, what it borrows, and who waits."""

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


# Of submissions whose queue could not be drained: the library may still write there.
_never_freed: list[Optional[raw.Memory]] = []


class _Core:
    """The part of a queue that outlives it until the last operation has ended. It knows no Queue, so that one that is
    forgotten is collected."""

    def __init__(self, handle: raw.Handle) -> None:
        self.handle: Optional[raw.Handle] = handle
        self.fd: int = raw.kvbm_queue_fd(handle)
        self.lock = threading.Lock()
        self.pending: dict[int, _Pending] = {}
        self.tokens = itertools.count(1)
        self.unclaimed: deque[Completion] = deque()
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        self.watching: dict[asyncio.AbstractEventLoop, int] = {}
        self.threaded = 0
        self.pid = os.getpid()
        self.thread: Optional[threading.Thread] = None

    def submit(self, pending: _Pending, call: Callable[[raw.Handle, int], Any]) -> Any:
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
            completion = Completion._make((pending.user_data, *row[1:], None if is_layer else items))
            if pending.future is None and pending.on_layer is None:
                returned.append(completion)
            else:
                self._deliver(pending, completion, is_layer)
        return returned

    def _deliver(self, pending: _Pending, completion: Completion, is_layer: bool) -> None:
        if pending.loop is not None:
            try:
                if pending.loop is asyncio._get_running_loop():
                    self._settle(pending, completion, is_layer)
                else:
                    pending.loop.call_soon_threadsafe(self._settle, pending, completion, is_layer)
            except RuntimeError:
                pass  # the loop was closed: nobody waits any more
            return
        if not is_layer:
            with self.lock:
                self.threaded -= 1
        self._resolve(pending, completion, is_layer)

    def _settle(self, pending: _Pending, completion: Completion, is_layer: bool) -> None:
        """In the loop's own thread."""
        if not is_layer and pending.loop is not None:
            self._unwatch(pending.loop)
        self._resolve(pending, completion, is_layer)

    @staticmethod
    def _resolve(pending: _Pending, completion: Completion, is_layer: bool) -> None:
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
                future.set_exception(_failure(completion))
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
            rows = raw.kvbm_queue_poll(self.handle, _BATCH)[1]
            self.unclaimed.extend(self.take(rows))
            if len(rows) < _BATCH:
                break
        # Events keep the descriptor readable until somebody takes them.
        self.buffer_events()

    def buffer_events(self) -> None:
        while self.handle is not None:
            rows = raw.kvbm_queue_poll_events(self.handle, _BATCH)[1]
            self.events.extend(map(Event._make, rows))
            if len(rows) < _BATCH:
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
                rows = raw.kvbm_queue_wait(handle, _BATCH, _SLICE_NS // 4)[1]
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
                    _cancel(handle, number)
            while time.monotonic() < end and any(p.cancellable for p in list(self.pending.values())):
                self.take(raw.kvbm_queue_wait(handle, _BATCH, _SLICE_NS // 10)[1])
        except KvbmError:
            pass
        with self.lock:
            waiting = list(self.pending.values())
            for pending in waiting:
                _never_freed.extend((pending.number, pending.statuses))
            self.pending.clear()
        for pending in waiting:
            if pending.future is not None:
                self._deliver(pending, _gone(pending), False)
        for loop in list(self.watching):
            try:
                loop.call_soon_threadsafe(loop.remove_reader, self.fd)
            except RuntimeError:
                pass
        self.handle = None


class Queue:
    """For at most `depth` operations in flight (1 to 65,536). Thread: any.

    close(), also when it is forgotten, cancels what is in flight and waits for it: the library writes to memory of
    an operation until it has completed.
    """

    __slots__ = ("_core", "_finalizer", "__weakref__")

    def __init__(self, context: Context, depth: int = 1024) -> None:
        self._start(context._handle, depth)

    def _start(self, context: Optional[raw.Handle], depth: int) -> None:
        self._core = _Core(raw.kvbm_queue_create(context, depth)[1])
        self._finalizer = weakref.finalize(self, self._core.drain)

    @classmethod
    def _of(cls, context: Optional[raw.Handle], depth: int) -> Queue:
        queue = cls.__new__(cls)
        queue._start(context, depth)
        return queue

    def fileno(self) -> int:
        """A descriptor that polls readable while completions or events wait; do not read or close it."""
        if self._core.handle is None:
            raise error_of(raw.KVBM_ERR_STALE, "the queue is closed")
        return self._core.fd

    def poll(self, capacity: int = _BATCH) -> list[Completion]:
        """Completions that are there, of submissions without a future. Never blocks."""
        core = self._core
        taken = _front(core.unclaimed, capacity)
        return taken if len(taken) == capacity else taken + core.poll(capacity - len(taken))

    def wait(self, timeout_ns: int = FOREVER, capacity: int = _BATCH) -> list[Completion]:
        """As poll, but waits for the first one; [] after the timeout."""
        end = None if timeout_ns >= FOREVER else time.monotonic_ns() + timeout_ns
        while True:
            found = self.poll(capacity)
            if found:
                return found
            left = _SLICE_NS if end is None else min(_SLICE_NS, end - time.monotonic_ns())
            if left <= 0:
                return []
            handle = self._core.handle
            found = self._core.take(raw.kvbm_queue_wait(handle, capacity, left)[1]) if handle is not None else []
            if found:
                return found

    def poll_events(self, capacity: int = 1024) -> list[Event]:
        """Block events that are there (Manager.subscribe). Never blocks."""
        core = self._core
        if core.handle is None:
            raise error_of(raw.KVBM_ERR_STALE, "the queue is closed")
        taken = _front(core.events, capacity)
        rows = raw.kvbm_queue_poll_events(core.handle, capacity - len(taken))[1] if len(taken) < capacity else []
        return taken + [Event._make(row) for row in rows]

    @property
    def closed(self) -> bool:
        return self._core.handle is None

    def close(self) -> None:
        """Cancels what is in flight, waits for it, and ends the queue. Twice is fine."""
        self._finalizer()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


Call = Callable[[Optional[raw.Handle], int, Optional[raw.Memory]], Any]
"""Runs the raw call with (queue or None, token, memory for the operation's number)."""


def submit(queue: Queue, call: Call, *, user_data: Any, statuses: Optional[raw.Memory], keep: Any,
           cancellable: bool = True) -> Operation:
    """Submits without a future."""
    pending = _Pending(user_data, statuses, keep, cancellable)
    queue._core.submit(pending, lambda handle, token: call(handle, token, pending.number))
    return Operation(queue._core, pending.number, user_data, None if statuses is None else memoryview(statuses))


def submit_async(queue: Queue, call: Call, *, statuses: Optional[raw.Memory], keep: Any, cancellable: bool = True,
                 on_layer: Optional[Callable[[Completion], object]] = None) -> asyncio.Future[Completion]:
    """Submits with a future of the running loop. Cancelling it asks the library to end the operation."""
    core = queue._core
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Completion] = loop.create_future()
    pending = _Pending(None, statuses, keep, cancellable)
    pending.future, pending.loop, pending.on_layer = future, loop, on_layer
    core.submit(pending, lambda handle, token: call(handle, token, pending.number))
    core.watch(loop)
    if cancellable:
        future.add_done_callback(lambda done: _cancel_if(done.cancelled(), core, pending))
    return future


def submit_future(queue: Queue, call: Call, *, statuses: Optional[raw.Memory], keep: Any, cancellable: bool = True,
                  on_layer: Optional[Callable[[Completion], object]] = None,
                  ) -> concurrent.futures.Future[Completion]:
    """Submits with a plain future, which a thread of the queue's resolves."""
    core = queue._core
    future: concurrent.futures.Future[Completion] = concurrent.futures.Future()
    pending = _Pending(None, statuses, keep, cancellable)
    pending.future, pending.on_layer = future, on_layer
    core.drive()
    try:
        core.submit(pending, lambda handle, token: call(handle, token, pending.number))
    except BaseException:
        with core.lock:
            core.threaded -= 1
        raise
    if cancellable:
        future.add_done_callback(lambda done: _cancel_if(done.cancelled(), core, pending))
    return future


def _cancel_if(cancelled: bool, core: _Core, pending: _Pending) -> None:
    number = int(memoryview(pending.number)[0])
    if cancelled and number and core.handle is not None:
        _cancel(core.handle, number)


def _cancel(handle: raw.Handle, number: int) -> None:
    try:
        raw.kvbm_queue_cancel(handle, number)
    except KvbmError:
        pass  # it has completed


def _front(items: deque[_T], n: int) -> list[_T]:
    """Takes up to n items; other threads may take some meanwhile."""
    taken: list[_T] = []
    try:
        while len(taken) < n:
            taken.append(items.popleft())
    except IndexError:
        pass
    return taken


def _failure(completion: Completion) -> KvbmError:
    error = error_of(completion.status)
    error.item_status = completion.item_status
    return error


def _gone(pending: _Pending) -> Completion:
    return Completion(pending.user_data, 0, 0, raw.KVBM_ERR_CANCELLED, 0, 0, 0, 0, 0, None)
