"""Queues: completions of operations, and their futures.

Every accepted submission has one completion. Three kinds of code take completions from the library: an event loop that
watches the queue's descriptor, the thread behind plain futures, and callers of poll and wait. Each passes a completion
to its future. Completions of submissions without a future are returned by poll and wait.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _native as raw
from .constants import FOREVER
from .dispatch import BATCH, SLICE_NS, Completion, Core, Event, Pending, cancel, event_of, front
from .errors import error_of
from .memory import shown

if TYPE_CHECKING:
    from .context import Context


class Operation:
    """A submission that was given a queue: poll() or wait() of it returns the completion."""

    __slots__ = ("_core", "_number", "user_data", "item_status")

    def __init__(self, core: Core, number: raw.Memory, user_data: Any, item_status: Optional[memoryview]) -> None:
        self._core = core
        self._number = number
        self.user_data = user_data
        self.item_status = item_status

    @property
    def number(self) -> int:
        return int(memoryview(self._number)[0])

    def __repr__(self) -> str:
        return f"<libkvbm.Operation {self.number}>"

    def cancel(self) -> None:
        """Asks that it ends early; the completion still comes. ClosedError if it has come."""
        raw.kvbm_queue_cancel(self._core.handle, self.number)


class Queue:
    """For at most `depth` operations in flight (1 to 65,536). Thread: any.

    close(), also when it is forgotten, cancels what is in flight and waits for it: the library writes to memory of
    an operation until it has completed.
    """

    __slots__ = ("_core", "_finalizer", "__weakref__")

    def __init__(self, context: Context, depth: int = 1024) -> None:
        self._start(context._handle, depth)

    def _start(self, context: Optional[raw.Handle], depth: int) -> None:
        self._core = Core(raw.kvbm_queue_create(context, depth)[1])
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

    def poll(self, capacity: int = BATCH) -> list[Completion]:
        """Completions that are there, of submissions without a future. Never blocks."""
        core = self._core
        taken = front(core.unclaimed, capacity)
        return taken if len(taken) == capacity else taken + core.poll(capacity - len(taken))

    def wait(self, timeout_ns: int = FOREVER, capacity: int = BATCH) -> list[Completion]:
        """As poll, but waits for the first one; [] after the timeout."""
        end = None if timeout_ns >= FOREVER else time.monotonic_ns() + timeout_ns
        while True:
            found = self.poll(capacity)
            if found:
                return found
            left = SLICE_NS if end is None else min(SLICE_NS, end - time.monotonic_ns())
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
        taken = front(core.events, capacity)
        rows = raw.kvbm_queue_poll_events(core.handle, capacity - len(taken))[1] if len(taken) < capacity else []
        return taken + [event_of(row) for row in rows]

    @property
    def closed(self) -> bool:
        return self._core.handle is None

    def close(self) -> None:
        """Cancels what is in flight, waits for it, and ends the queue. Twice is fine."""
        self._finalizer()

    def __repr__(self) -> str:
        return shown(self, self.closed, in_flight=len(self._core.pending))

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
    pending = Pending(user_data, statuses, keep, cancellable)
    queue._core.submit(pending, lambda handle, token: call(handle, token, pending.number))
    return Operation(queue._core, pending.number, user_data, None if statuses is None else memoryview(statuses))


def submit_async(queue: Queue, call: Call, *, statuses: Optional[raw.Memory], keep: Any, cancellable: bool = True,
                 on_layer: Optional[Callable[[Completion], object]] = None) -> asyncio.Future[Completion]:
    """Submits with a future of the running loop. Cancelling it asks the library to end the operation."""
    core = queue._core
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Completion] = loop.create_future()
    pending = Pending(None, statuses, keep, cancellable)
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
    pending = Pending(None, statuses, keep, cancellable)
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


def _cancel_if(cancelled: bool, core: Core, pending: Pending) -> None:
    number = int(memoryview(pending.number)[0])
    if cancelled and number and core.handle is not None:
        cancel(core.handle, number)
