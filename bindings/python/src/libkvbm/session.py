"""Sessions: the decode side, which brings a request into its blocks, layer by layer, from the ranks that compute it."""
from __future__ import annotations

import asyncio
import concurrent.futures
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Sequence, Union

from . import _native as raw
from . import _raw
from .constants import FOREVER
from .memory import shown, text
from .offer import RequestId, request_bytes, starter, wait_in_slices
from .dispatch import Completion
from .queue import Queue, submit

if TYPE_CHECKING:
    from .cache import Cache
    from .memory import Integers


class Source(NamedTuple):
    """A prefill rank to read from: an address of node.peers, or the name of a node."""

    node: str
    rank: int = 0


class Session:
    """Brings a request into these blocks from the prefill ranks that have it: all of them are named. Thread: any.

    `notify` as for Offer: `done` is then a future of the end, and on_layer is called with a Completion for each layer
    once it is in place and verified: operation = component * 2**32 + layer of the model. With a queue and no `notify`
    the completions of layers and of the end come from the queue's poll() and wait().

    `stream` is one of the cache's device (a CUstream or cudaStream_t as a number; 0 is the legacy one): the session
    begins after what it holds now. None: at once.
    """

    __slots__ = ("_handle", "done", "__weakref__")

    def __init__(self, cache: Cache, request: RequestId, block_ids: Integers, sources: Sequence[Source], *,
                 rank: int = 0, ranks: int = 0, first_position: int = 0, begin: int = 0, end: int = 0,
                 timeout_ns: Optional[int] = None, budget_bytes: int = 0, no_layers: bool = False,
                 stream: Optional[int] = None,
                 notify: Optional[str] = None, on_layer: Optional[Callable[[Completion], object]] = None,
                 queue: Optional[Queue] = None, user_data: Any = None) -> None:
        ids, each = cache.block_list(block_ids)
        options = _raw.kvbm_session_options_t()
        options.rank, options.ranks = rank, ranks
        options.no_layers = int(no_layers or (notify is not None and on_layer is None))
        options.first_position, options.begin, options.end = first_position, begin, end
        options.budget_bytes = budget_bytes
        options.stream, options.has_stream = stream or 0, int(stream is not None)
        if timeout_ns is not None:
            options.timeout_ns = timeout_ns
        names = [text(source.node, "node") for source in sources]
        memory = raw.Memory(raw.kvbm_source_t_size * max(len(sources), 1))
        for i, source in enumerate(sources):
            row = raw.kvbm_source_t_at(memory, i)
            row.node, row.rank = names[i], source.rank
        name, owner, n = request_bytes(request), cache._handle, len(sources)
        self._handle: Optional[raw.Handle] = None
        self.done: Union[None, asyncio.Future[Completion], concurrent.futures.Future[Completion]] = None

        def call(handle: Optional[raw.Handle], token: int, number: Optional[raw.Memory]) -> None:
            self._handle = raw.kvbm_session_open(owner, name, ids, each, memory, n, options, handle, token)[1]

        if on_layer is not None and notify is None:
            raise ValueError("on_layer needs notify")
        if notify is not None:
            start = starter(notify)
            self.done = start(queue or cache.manager.queue(), call, statuses=None, keep=owner, cancellable=False,
                              on_layer=on_layer)
        elif queue is not None:
            submit(queue, call, user_data=user_data, statuses=None, keep=owner, cancellable=False)
        else:
            call(None, 0, None)

    def wait(self, timeout_ns: int = FOREVER) -> bool:
        """True when all is in place, False if it goes on after the timeout; raises how it failed."""
        return wait_in_slices(lambda left: raw.kvbm_session_wait(self._handle, left), timeout_ns)

    def wait_layer(self, layer: int, component: int = 0, timeout_ns: int = FOREVER) -> bool:
        """True when that layer is in place and verified; False after the timeout."""
        def wait(left: int) -> int:
            return raw.kvbm_session_wait_layer(self._handle, component, layer, left)

        return wait_in_slices(wait, timeout_ns)

    def abort(self, reason: Optional[str] = None) -> None:
        """Ends the session. Prefill ranks receive the reason."""
        raw.kvbm_session_abort(self._handle, text(reason, "reason"))

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Aborts one that goes on. Twice is fine."""
        self._handle = None

    def __repr__(self) -> str:
        return shown(self, self.closed)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()
