"""Sends events: a PUB socket, and a ROUTER socket for replays of missed ones.

A message has three frames: topic, sequence number (8 bytes, big-endian, from 0), payload. A replay request is
[empty, 8-byte first sequence number] from a DEALER. The answer is [empty, topic, number, payload] for every later batch
in the buffer, then [empty, empty, 8 bytes of 0xFF, empty].
"""
from __future__ import annotations

import collections
import logging
import os
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Optional, Sequence

from ..engine import ConfigurationError
from . import endpoint as endpoints
from .kinds import Batch, Event
from .packing import zmq
from .wire import ENCODINGS, VARIANTS, encode

_END = b"\xff" * 8
_POLL_MS = 1000
_REPLAY_SLICE = 64
_MAX_REPLAYS = 64

log = logging.getLogger("libkvbm.events")


@dataclass(frozen=True)
class PublisherCounts:
    published: int
    """Batches that were handed to ZeroMQ."""
    dropped: int
    """Batches that were not taken because the queue was full; each is a gap in the sequence."""
    failed: int
    """Batches that could not be encoded or sent; gaps as well."""
    replays: int
    """Replay requests that were answered."""
    refused: int
    """Replay requests that were not: wrong frames, or too many at once."""


class Publisher:
    """Publishes batches of events. Thread: any; publish() never waits and never raises for the network.

    endpoint         "tcp://*:5557"; wildcards, ipc and inproc bind and a named host is connected to, unless `bind` says
    replay_endpoint  always bound; None: no replay
    buffer_steps     batches kept for replay, and at most `buffer_bytes` of them
    max_queue_size   batches that wait for the publisher's thread; what comes when it is full is dropped, and the
                     dropped batch's sequence number is not used again
    rank             data-parallel rank: added to every port and said in every batch; None says none
    encoding         "map" (vLLM from 0.25 on, SGLang, Dynamo) or "array" (vLLM up to 0.22, llm-d)
    variant          "vllm" or "sglang": which fields there are
    """

    def __init__(self, endpoint: str = "tcp://*:5557", *, replay_endpoint: Optional[str] = None, topic: str = "",
                 buffer_steps: int = 10_000, buffer_bytes: int = 256 << 20, hwm: int = 100_000,
                 max_queue_size: int = 100_000, rank: Optional[int] = None, encoding: str = "map",
                 variant: str = "vllm", bind: Optional[bool] = None, context: Optional[Any] = None) -> None:
        _check(buffer_steps, hwm, max_queue_size, rank, encoding, variant)
        self._encoding, self._variant, self._rank = encoding, variant, rank
        self._topic = topic.encode()
        self._limit = max_queue_size
        self._lock = threading.Lock()
        self._queue: collections.deque[tuple[int, Batch]] = collections.deque()
        self._seq = 0
        self._dropped = self._published = self._failed = self._replays = self._refused = 0
        self._closing = False
        self._kept: collections.deque[tuple[int, bytes]] = collections.deque()
        self._kept_steps, self._kept_bytes, self._kept_limit = buffer_steps, 0, buffer_bytes
        self._jobs: collections.deque[tuple[bytes, int]] = collections.deque()
        self._own = context is None
        self._context = context or zmq.Context()
        self._pub: Any = None
        self._router: Any = None
        try:
            self._open(endpoint, replay_endpoint, hwm, bind)
        except BaseException:
            self._shut()
            raise
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="kvbm-events", daemon=True)
        self._thread.start()

    def publish(self, events: Sequence[Event], *, ts: Optional[float] = None) -> bool:
        """Queues one batch; False where it was dropped. The events must not be changed afterwards."""
        batch = Batch(time.time() if ts is None else ts, list(events), self._rank)
        with self._lock:
            if self._closing:
                return False
            seq, self._seq = self._seq, self._seq + 1
            if len(self._queue) >= self._limit:
                self._dropped += 1
                return False
            self._queue.append((seq, batch))
            first = len(self._queue) == 1
            if first:
                os.eventfd_write(self._wake, 1)
        return True

    @property
    def next_sequence(self) -> int:
        return self._seq

    @property
    def counts(self) -> PublisherCounts:
        with self._lock:
            return PublisherCounts(self._published, self._dropped, self._failed, self._replays, self._refused)

    def close(self, timeout: float = 1.0) -> None:
        """Sends what is queued, for at most `timeout` seconds, and ends the thread and the sockets. Twice is fine."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._end_by = time.monotonic() + timeout
            self._linger_ms = int(timeout * 1000)
            os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    # ---- sockets

    def _open(self, endpoint: str, replay_endpoint: Optional[str], hwm: int, bind: Optional[bool]) -> None:
        rank = self._rank or 0
        where = endpoints.of_rank(endpoints.check(endpoint), rank)
        self._pub = self._context.socket(zmq.PUB)
        self._pub.setsockopt(zmq.SNDHWM, hwm)
        if endpoints.binds(where) if bind is None else bind:
            self.endpoint = _listen(self._pub, where)
        else:
            self.endpoint = where
            self._pub.connect(where)
        self.replay_endpoint: Optional[str] = None
        if replay_endpoint is None:
            return
        self._router = self._context.socket(zmq.ROUTER)
        # A reader that does not read has at most one whole replay waiting; what is beyond is dropped.
        self._router.setsockopt(zmq.SNDHWM, self._kept_steps + 16)
        self._router.setsockopt(zmq.MAXMSGSIZE, 1024)
        self.replay_endpoint = _listen(self._router,
                                       endpoints.of_rank(endpoints.check(replay_endpoint, "replay_endpoint"), rank))

    def _shut(self, linger_ms: int = 0) -> None:
        for socket in (self._pub, self._router):
            if socket is not None:
                socket.close(linger=linger_ms)
        if self._own:
            self._context.term()

    # ---- the thread

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        if self._router is not None:
            poller.register(self._router, zmq.POLLIN)
        try:
            while self._turn(poller):
                pass
        finally:
            # Messages in ZeroMQ's queue are sent within the rest of close()'s time.
            self._shut(self._linger_ms if self._closing else 0)

    def _turn(self, poller: Any) -> bool:
        """False when there is no more to do."""
        with self._lock:
            closing, waiting = self._closing, bool(self._queue)
        if closing and (not waiting or time.monotonic() > self._end_by):
            return False
        try:
            poller.poll(0 if waiting or self._jobs else _POLL_MS)
            self._drain_wake()
            self._send_queued()
            self._take_requests()
            self._answer()
        except zmq.ZMQError as error:
            log.error("events: %s", error)
            time.sleep(0.1)
        return True

    def _drain_wake(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass

    def _send_queued(self) -> None:
        for _ in range(_REPLAY_SLICE):
            with self._lock:
                if not self._queue:
                    return
                seq, batch = self._queue.popleft()
            try:
                payload = encode(batch, encoding=self._encoding, variant=self._variant)
                self._pub.send_multipart((self._topic, seq.to_bytes(8, "big"), payload))
            except Exception as error:  # whatever a caller put into an event must not end the thread
                with self._lock:
                    self._failed += 1
                log.error("events: batch %d is lost: %s", seq, error)
                continue
            self._keep(seq, payload)
            with self._lock:
                self._published += 1

    def _keep(self, seq: int, payload: bytes) -> None:
        if self._router is None:
            return
        self._kept.append((seq, payload))
        self._kept_bytes += len(payload)
        while self._kept and (len(self._kept) > self._kept_steps or self._kept_bytes > self._kept_limit):
            self._kept_bytes -= len(self._kept.popleft()[1])

    def _take_requests(self) -> None:
        if self._router is None:
            return
        for _ in range(_MAX_REPLAYS):
            try:
                frames = self._router.recv_multipart(flags=zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) != 3 or frames[1] or len(frames[2]) != 8 or len(self._jobs) >= _MAX_REPLAYS:
                with self._lock:
                    self._refused += 1
                continue
            self._jobs.append((frames[0], int.from_bytes(frames[2], "big")))

    def _answer(self) -> None:
        """A slice of the first replay, so that live events need not wait for the whole of it."""
        if not self._jobs:
            return
        client, first = self._jobs[0]
        # Numbers ascend, but with gaps: of batches that were dropped.
        behind = self._kept[-1][0] - first + 1 if self._kept else 0
        if behind > 0:
            at = max(0, len(self._kept) - behind)
            while at < len(self._kept) and self._kept[at][0] < first:
                at += 1
            slice_ = [self._kept[i] for i in range(at, min(at + _REPLAY_SLICE, len(self._kept)))]
            for seq, payload in slice_:
                self._router.send_multipart((client, b"", self._topic, seq.to_bytes(8, "big"), payload))
            if slice_ and slice_[-1][0] < self._kept[-1][0]:
                self._jobs[0] = (client, slice_[-1][0] + 1)
                return
        self._jobs.popleft()
        self._router.send_multipart((client, b"", b"", _END, b""))
        with self._lock:
            self._replays += 1


def _listen(socket: Any, endpoint: str) -> str:
    """The endpoint that it became: the system may have chosen the port."""
    try:
        if "[" in endpoint or "::" in endpoint:
            socket.setsockopt(zmq.IPV6, 1)
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise ConfigurationError(f"{endpoint} cannot be listened on: {error.strerror or error}; "
                                 "another engine may use the port") from error
    bound: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)
    return bound.rstrip(b"\0").decode()


def _check(buffer_steps: int, hwm: int, max_queue_size: int, rank: Optional[int], encoding: str, variant: str) -> None:
    for name, value, least in (("buffer_steps", buffer_steps, 0), ("hwm", hwm, 0),
                               ("max_queue_size", max_queue_size, 1), ("rank", rank or 0, 0)):
        if not isinstance(value, int) or not least <= value < 1 << 31:
            raise ConfigurationError(f"{name} is {value!r}: a whole number from {least} on is expected")
    if encoding not in ENCODINGS:
        raise ConfigurationError(f"encoding is {encoding!r}: map or array")
    if variant not in VARIANTS:
        raise ConfigurationError(f"variant is {variant!r}: vllm or sglang")
    if encoding == "array" and variant == "sglang":
        raise ConfigurationError("SGLang's events are maps: encoding must be map")
