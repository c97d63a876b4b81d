"""Offers: the prefill side of a session, which gives the blocks of a request to decode nodes while it computes them."""
from __future__ import annotations

import asyncio
import concurrent.futures
import time
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _native as raw
from . import _raw
from .constants import FOREVER
from .errors import KvbmError, invalid
from .memory import shown, text
from .dispatch import Completion
from .queue import Queue, submit, submit_async, submit_future

if TYPE_CHECKING:
    from .cache import Cache
    from .memory import Integers

RequestId = Union[bytes, uuid.UUID]
# How long a wait stays in the library at a time, so that signals (Ctrl-C) are seen between.
_SLICE_NS = 200_000_000


class Offer:
    """Offers the blocks of a request. Bytes are read only after they are published, and published bytes must not change
    until the offer ends. `request` is 16 bytes or a UUID, never used again. Thread: any.

    `notify` selects the notification of the end: "future" makes `done` a plain future, "asyncio" one of the running
    loop. Without it, and with a queue, the queue's poll() and wait() return the completion, which has `user_data`.
    """

    __slots__ = ("_handle", "done", "__weakref__")

    def __init__(self, cache: Cache, request: RequestId, block_ids: Integers, *, rank: int = 0, first_position: int = 0,
                 begin: int = 0, end: int = 0, timeout_ns: Optional[int] = None, notify: Optional[str] = None,
                 queue: Optional[Queue] = None, user_data: Any = None) -> None:
        ids, each = cache.block_list(block_ids)
        options = _raw.kvbm_offer_options_t()
        options.rank, options.first_position, options.begin, options.end = rank, first_position, begin, end
        if timeout_ns is not None:
            options.timeout_ns = timeout_ns
        name, owner = request_bytes(request), cache._handle
        self._handle: Optional[raw.Handle] = None
        self.done: Union[None, asyncio.Future[Completion], concurrent.futures.Future[Completion]] = None

        def call(handle: Optional[raw.Handle], token: int, number: Optional[raw.Memory]) -> None:
            self._handle = raw.kvbm_offer_open(owner, name, ids, each, options, handle, token)[1]

        if notify is not None:
            start = starter(notify)
            self.done = start(queue or cache.manager.queue(), call, statuses=None, keep=owner, cancellable=False)
        elif queue is not None:
            submit(queue, call, user_data=user_data, statuses=None, keep=owner, cancellable=False)
        else:
            call(None, 0, None)

    def publish(self, component: int = 0, first_layer: int = 0, n_layers: int = 0, begin: int = 0,
                end: int = 0) -> None:
        """Says that positions [begin, end) of these layers are computed and in memory; 0 = all of them."""
        raw.kvbm_offer_publish(self._handle, component, first_layer, n_layers, begin, end)

    def publish_on_stream(self, stream: int, component: int = 0, first_layer: int = 0, n_layers: int = 0, begin: int = 0,
                          end: int = 0) -> None:
        """publish() for a cache on a device, once the stream (a CUstream or cudaStream_t as a number; 0 is the legacy
        one) has done what it holds now: called behind the kernels that compute the layer, it waits for nothing."""
        raw.kvbm_offer_publish_on_stream(self._handle, component, first_layer, n_layers, begin, end, stream)

    def publish_all(self) -> None:
        """Publishes everything that is offered."""
        raw.kvbm_offer_publish_all(self._handle)

    def abort(self, reason: Optional[str] = None) -> None:
        """Ends the offer. Decode ranks that wait for it receive the reason."""
        raw.kvbm_offer_abort(self._handle, text(reason, "reason"))

    def wait(self, timeout_ns: int = FOREVER) -> bool:
        """True when the offer has ended well, False if it goes on after the timeout; raises how it failed."""
        return wait_in_slices(lambda left: raw.kvbm_offer_wait(self._handle, left), timeout_ns)

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Aborts one that goes on. Twice is fine."""
        self._handle = None

    def __repr__(self) -> str:
        return shown(self, self.closed)

    def __enter__(self) -> Offer:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def request_bytes(request: RequestId) -> bytes:
    name = request.bytes if isinstance(request, uuid.UUID) else bytes(request)
    if len(name) != 16:
        raise invalid("a request id has 16 bytes")
    return name


def starter(notify: str) -> Callable[..., Any]:
    if notify not in ("asyncio", "future"):
        raise ValueError('notify is "asyncio", "future" or None')
    return submit_async if notify == "asyncio" else submit_future


def wait_in_slices(wait: Callable[[int], Any], timeout_ns: int) -> bool:
    end = None if timeout_ns >= FOREVER else time.monotonic_ns() + timeout_ns
    while True:
        left = _SLICE_NS if end is None else max(0, min(_SLICE_NS, end - time.monotonic_ns()))
        try:
            wait(left)
            return True
        except KvbmError as error:
            if error.status != raw.KVBM_ERR_AGAIN:
                raise
        if end is not None and time.monotonic_ns() >= end:
            return False
