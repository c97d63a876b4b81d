"""Stores that are Python objects: blocks wherever a program can put bytes under a name.

The library packs blocks into objects, finds them again, checks every byte that comes back, retries, and bounds time and
memory (docs/stores.md). A store only moves bytes, and may lose any object at any time. Its methods run on threads of
their own here: the library's threads never run Python, nor wait for it.
"""
from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import errno
import inspect
import logging
import os
import threading
import time
import traceback
from abc import ABC, abstractmethod
from typing import Any, Coroutine, Iterable, Mapping, Optional
from urllib.parse import quote

from . import _native as raw
from .errors import invalid

_PUT, _GET, _REMOVE = 1, 2, 3  # KVBM_STORE_*, and LIST is what is left
_EVICTS = 4
_MOST_THREADS, _MOST_TASKS = 64, 1024
_METHODS = ("put", "get", "remove", "list")
_MESSAGE_BYTES = 127
# How long the end of the program waits for operations that stores are in the middle of.
_EXIT_S = 1.0

_log = logging.getLogger("libkvbm.store")


class Store(ABC):
    """Base class of stores. A store has objects: bytes under a name, written whole, read in ranges, listed by prefixes
    of their names. Pass one to a manager as Tier(store=...). It serves only that manager, until the manager and all
    objects made from it are closed.

    The four methods are plain ones, or coroutines. Plain methods are called on up to `concurrency` threads at a time
    and may block. Coroutines (list may be an asynchronous generator) run on the store's own event loop, up to
    `concurrency` at a time, and are cancelled at their time limit. Names have at most 160 bytes of [a-z0-9], '-', '.',
    and '/' between parts.

    A method reports a failure with an exception:
    - KeyError or FileNotFoundError: there is no such object
    - TimeoutError
    - PermissionError: not retried soon
    - any other: an I/O error, which is retried
    The text of the exception goes to the log and must not have secrets. After a few failures in a row the store is not
    called for a while.

    The library owns the memory that a method gets: copy bytes that are needed later, as bytes(data). A view cannot be
    used after the call, and the operation does not end while a part of it is referenced.
    """

    concurrency: int = 0
    """Operations at a time; 0: 8, and 64 of coroutines. At most 64 and 1024."""
    object_bytes: int = 0
    """The size of an object that is written and read at best speed; 0: 4 MiB."""
    max_object_bytes: int = 0
    """Larger objects are refused; 0: no limit."""
    evicts: bool = False
    """Whether it may remove objects by itself to make room."""

    @abstractmethod
    def put(self, name: str, data: memoryview) -> Any:
        """Writes the object, replacing one that exists. It is visible whole or not at all."""

    @abstractmethod
    def get(self, name: str, offset: int, buffer: memoryview) -> Any:
        """Reads the object's bytes from `offset` into the buffer. Returns how many: fewer than its length only at the
        end of the object. None: there is no such object."""

    @abstractmethod
    def remove(self, name: str) -> Any:
        """Removes the object. One that is not there is no error."""

    @abstractmethod
    def list(self, prefix: str, after: str) -> Any:
        """An iterable of the names that begin with `prefix` and sort after `after`; others are passed over, and the
        order does not matter. A name appears at most one second after its put has returned. Only names under v1/i/,
        v1/e/ and v1/w/ are asked for: a writer puts a few of them a second at most."""

    def close(self) -> Any:
        """Called when nothing will be asked of the store any more, on one of its threads. May be a coroutine too."""

    def __str__(self) -> str:
        """The name in messages, without secrets."""
        return f"python:{type(self).__name__}"


class Service:
    """A store in use by one manager. Its threads keep it alive until the library closes it or the program ends."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            raise TypeError(f"a store is an object of a class of libkvbm.Store, not of {type(store).__name__}")
        coroutines = [name for name in _METHODS if _is_coroutine(getattr(store, name))]
        if coroutines and len(coroutines) != len(_METHODS):
            raise TypeError(f"{type(store).__name__}: {', '.join(coroutines)} of {', '.join(_METHODS)} are coroutines: "
                            "all four are, or none is")
        self.store = store
        most = _MOST_TASKS if coroutines else _MOST_THREADS
        n = store.concurrency or (64 if coroutines else 8)
        if not 1 <= n <= most:
            raise ValueError(f"{type(store).__name__}: concurrency is {n}, and not 1 to {most}")
        with _lock:
            if any(service.store is store for service in _services):
                raise invalid(f"the store {store} serves another manager: give each an object of its own")
            self.channel = raw.Channel(str(store), _EVICTS if store.evicts else 0, n, store.object_bytes,
                                       store.max_object_bytes, bool(coroutines))
            _services.add(self)
        self._left = 1 if coroutines else n
        names = [f"kvbm-store-{self.channel.number}-{i}" for i in range(self._left)]
        self._threads = [threading.Thread(target=self._run_loop if coroutines else self._work, name=name, daemon=True)
                         for name in names]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:  # there are too many threads
            self.channel.abandon()
            self._forget()
            raise

    def url(self, options: Mapping[str, str]) -> str:
        pairs = "&".join(f"{name}={quote(str(value))}" for name, value in options.items())
        return f"python://{self.channel.number}" + (f"?{pairs}" if pairs else "")

    def abandon(self) -> None:
        """The manager was not made."""
        self.channel.abandon()

    def end(self) -> None:
        """The program ends."""
        self.channel.shut()

    def join(self, until: float) -> None:
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    # ---- plain methods

    def _work(self) -> None:
        while isinstance(operation := self.channel.take(), raw.Operation):
            answer, error = _Answer(operation), None
            try:
                with answer.view:
                    answer.take(answer.call(self.store))
            except BaseException as raised:  # exceptions that would end the thread too: every operation needs an answer
                error = raised
            answer.finish(self.store, error)
            del operation, answer, error
        with _lock:
            self._left -= 1
            last = self._left == 0
        if last:
            try:
                self.store.close()
            except Exception:
                _log.exception("%s could not be closed", self.store)
            self._forget()

    # ---- coroutines

    def _run_loop(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            _log.exception("the event loop of %s has ended", self.store)
        finally:
            self.channel.shut()
            self._forget()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        tasks: dict[int, asyncio.Task[None]] = {}

        def begin(operation: raw.Operation) -> None:
            number = operation.facts()[0]
            task = tasks[number] = loop.create_task(self._handle(operation))
            task.add_done_callback(lambda _: tasks.pop(number, None))

        def cancel(number: int) -> None:
            if number in tasks:
                tasks[number].cancel()

        def feed() -> None:
            try:
                while (got := self.channel.take()) is not None:
                    if isinstance(got, int):
                        loop.call_soon_threadsafe(cancel, got)
                    else:
                        loop.call_soon_threadsafe(begin, got)
                    del got
                loop.call_soon_threadsafe(ended.set)
            except RuntimeError:
                pass  # the loop has ended before

        threading.Thread(target=feed, name=f"kvbm-store-{self.channel.number}-feed", daemon=True).start()
        await ended.wait()
        left = list(tasks.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        closing = self.store.close()
        if inspect.isawaitable(closing):
            await closing

    async def _handle(self, operation: raw.Operation) -> None:
        answer, error = _Answer(operation), None
        try:
            with answer.view:
                answer.take(await asyncio.wait_for(_awaited(answer.call(self.store)), answer.timeout_ns / 1e9))
        except BaseException as raised:
            error = raised
        answer.finish(self.store, error)

    def _forget(self) -> None:
        with _lock:
            _services.discard(self)


class _Answer:
    """One operation, and what came of it."""

    def __init__(self, operation: raw.Operation) -> None:
        self._operation = operation
        _, self._kind, self._name, self._after, self._bytes, self._offset, self.timeout_ns = operation.facts()
        self.view = memoryview(operation)
        self._names: Optional[bytes] = None
        self._done, self._more, self._missed = 0, False, False

    def call(self, store: Store) -> Any:
        if self._kind == _PUT:
            return store.put(self._name, self.view)
        if self._kind == _GET:
            return store.get(self._name, self._offset, self.view)
        if self._kind == _REMOVE:
            return store.remove(self._name)
        return store.list(self._name, self._after)

    def take(self, result: Any) -> None:
        """The method's result."""
        if self._kind in (_PUT, _REMOVE):
            return
        if self._kind != _GET:
            self._take_names(result)
        elif result is None:
            self._missed = True
        elif not isinstance(result, int) or not 0 <= result <= self._bytes:
            raise TypeError(f"get returned {result!r}: None, or how many of {self._bytes} bytes it has read")
        else:
            self._done = result

    def _take_names(self, names: Iterable[str]) -> None:
        size, page = 0, []
        for name in sorted({name for name in names if name.startswith(self._name) and name > self._after}):
            encoded = name.encode() + b"\0"
            if size + len(encoded) > self._bytes:
                self._more = True
                break
            size += len(encoded)
            page.append(encoded)
        self.view[:size] = b"".join(page)
        self._done = size

    def finish(self, store: Store, error: Optional[BaseException]) -> None:
        status, message = raw.KVBM_OK, ""
        if error is not None:
            status, message = _status_of(self._kind, error), f"{type(error).__name__}: {error}"
            # Its frames have views of the memory.
            traceback.clear_frames(error.__traceback__)
        elif self._missed:
            status = raw.KVBM_ERR_MISS
        try:
            self.view.release()
        except BufferError:
            pass  # something has a buffer of it: it is said below
        text = message.encode(errors="replace")[:_MESSAGE_BYTES].decode(errors="ignore").replace("\0", " ")
        if not self._operation.finish(status, self._done, self._more, text):
            _log.warning("%s keeps memory of the library's after %s: it has to copy what is to stay, as bytes(data). "
                         "The operation does not end until it is let go", store, self._name)


def _is_coroutine(method: Any) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def _awaited(result: Any) -> Coroutine[Any, Any, Any]:
    if inspect.isasyncgen(result):
        async def collect() -> list[Any]:
            return [name async for name in result]
        return collect()
    assert inspect.iscoroutine(result)
    return result


def _status_of(kind: int, error: BaseException) -> int:
    if isinstance(error, (TimeoutError, asyncio.CancelledError, concurrent.futures.TimeoutError)):
        return raw.KVBM_ERR_DEADLINE
    if isinstance(error, (KeyError, FileNotFoundError)):
        return raw.KVBM_ERR_MISS if kind == _GET else raw.KVBM_OK if kind == _REMOVE else raw.KVBM_ERR_IO
    if isinstance(error, PermissionError):
        return raw.KVBM_ERR_PERMISSION
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return raw.KVBM_ERR_DISK_FULL
    return raw.KVBM_ERR_IO


_lock = threading.Lock()
_services: set[Service] = set()


def _end_all() -> None:
    """Before the interpreter goes: no thread of ours may need it later."""
    with _lock:
        services = list(_services)
    for service in services:
        service.end()
    until = time.monotonic() + _EXIT_S
    for service in services:
        service.join(until)


def _forked() -> None:
    """A child has none of the threads."""
    global _lock
    _lock = threading.Lock()
    _services.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forked)
