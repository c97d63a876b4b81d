"""Events on their way in: from engines, or from libkvbm.

Nothing that arrives ends the loop: what is not right is counted. Sequence numbers show what was missed, the replay
socket is asked for it, and what it no longer has is said to be lost.
"""
from __future__ import annotations

import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Callable, Iterator, Optional

from . import endpoint as endpoints
from .kinds import Event
from .packing import zmq
from .wire import MAX_PAYLOAD, decode

_END = b"\xff" * 8
_MAX_STREAMS = 4096
_MAX_REPLAY_BYTES = 256 << 20
_MAX_SKIPPED = 1000


@dataclass(frozen=True)
class Received:
    """One message's events, or what happened to a stream."""

    stream: str
    """The topic and, where it says one, the data-parallel rank: "kv@pod@model", "kv@pod@model/1"."""
    topic: str
    rank: Optional[int]
    seq: int
    ts: float
    events: list[Event]
    replayed: bool = False
    lost: int = 0
    """Messages before this one that could not be got back: what is known of this stream may be wrong."""
    restarted: bool = False
    """The publisher began anew: what was known of this stream no longer holds."""


@dataclass
class SubscriberCounts:
    messages: int = 0
    events: int = 0
    malformed: int = 0
    """Messages and events that were not right, and were left out."""
    unknown: int = 0
    """Events of kinds that are not known."""
    gaps: int = 0
    missed: int = 0
    """Messages that did not come."""
    recovered: int = 0
    """Missed messages that the replay socket had."""
    lost: int = 0
    restarts: int = 0
    ignored: int = 0
    """Messages of more streams than are followed."""
    last_problem: str = field(default="", compare=False)


class Subscriber:
    """Reads one endpoint. Thread: one at a time, but for close().

    endpoint         connected to, unless it is a wildcard: then engines connect here
    replay_endpoint  where missed messages are asked for; None: they are lost
    topic            what topics begin with
    from_start       what was published before this came is missed, too
    """

    def __init__(self, endpoint: str, *, replay_endpoint: Optional[str] = None, topic: str = "", hwm: int = 100_000,
                 from_start: bool = True, replay_timeout: float = 2.0, bind: Optional[bool] = None,
                 context: Optional[Any] = None) -> None:
        endpoints.check(endpoint)
        self._replay_endpoint = None if replay_endpoint is None else endpoints.check(replay_endpoint,
                                                                                     "replay_endpoint")
        self._from_start, self._replay_timeout = from_start, replay_timeout
        self._counts = SubscriberCounts()
        self._next: OrderedDict[str, int] = OrderedDict()
        self._topics: dict[bytes, set[str]] = {}
        self._ready: deque[Received] = deque()
        self._own = context is None
        self._context: Any = context or zmq.Context()
        self._socket: Any = self._context.socket(zmq.SUB)
        try:
            self._socket.setsockopt(zmq.RCVHWM, hwm)
            self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD)
            self._socket.setsockopt(zmq.IPV6, int("[" in endpoint))
            self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
            if endpoints.reader_binds(endpoint) if bind is None else bind:
                self._socket.bind(endpoint)
            else:
                self._socket.connect(endpoint)
            bound: Any = self._socket.getsockopt(zmq.LAST_ENDPOINT)
            self.endpoint: str = bound.rstrip(b"\0").decode()
        except BaseException:
            self.close()
            raise

    @property
    def counts(self) -> SubscriberCounts:
        return replace(self._counts)

    def receive(self, timeout: float = 0.0) -> Optional[Received]:
        """The next message, with what it shows to be missing before it; None after `timeout` seconds."""
        end = time.monotonic() + timeout
        for _ in range(_MAX_SKIPPED):
            if self._ready:
                return self._ready.popleft()
            left = max(0.0, end - time.monotonic())
            if not self._socket.poll(int(left * 1000)):
                return None
            self._take(self._socket.recv_multipart())
        return self._ready.popleft() if self._ready else None

    def run(self, heard: Callable[[Received], object], stop: Callable[[], bool], interval: float = 0.2) -> None:
        """Calls `heard` for each message until `stop` says so, which is asked at least every `interval` seconds."""
        while not stop():
            received = self.receive(interval)
            if received is not None:
                heard(received)

    def close(self) -> None:
        """Twice is fine. Not while another thread is in receive()."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close(linger=0)
            if self._own:
                self._context.term()

    def __iter__(self) -> Iterator[Received]:
        """Yields the messages that are available now."""
        while (received := self.receive()) is not None:
            yield received

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    # ---- messages

    def _take(self, frames: list[bytes]) -> None:
        counts = self._counts
        counts.messages += 1
        if len(frames) != 3 or len(frames[1]) != 8 or len(frames[0]) > 1024:
            counts.malformed += 1
            counts.last_problem = "a message is topic, 8-byte sequence number and payload"
            return
        topic, seq = frames[0], int.from_bytes(frames[1], "big")
        received = self._decode(topic, seq, frames[2])
        if received is None:
            self._skip(topic, seq)
            return
        expected = self._expected(received, topic)
        if expected is None:
            counts.ignored += 1
            return
        restarted = seq < expected
        counts.restarts += restarted
        if restarted:
            expected = 0
        before = len(self._ready)
        lost = self._recover(received, topic, expected) if seq > expected else 0
        self._next[received.stream] = seq + 1
        self._ready.append(replace(received, lost=lost))
        if restarted:  # reported with the first message of the new stream
            self._ready[before] = replace(self._ready[before], restarted=True)

    def _decode(self, topic: bytes, seq: int, payload: bytes, *, replayed: bool = False) -> Optional[Received]:
        result = decode(payload)
        self._counts.malformed += result.malformed
        self._counts.unknown += result.unknown
        self._counts.last_problem = result.why or self._counts.last_problem
        if result.batch is None:
            return None
        self._counts.events += len(result.batch.events)
        name = topic.decode("utf-8", "replace")
        rank = result.batch.rank
        return Received(name if rank is None else f"{name}/{rank}", name, rank, seq, result.batch.ts,
                        result.batch.events, replayed)

    def _expected(self, received: Received, topic: bytes) -> Optional[int]:
        """The number that comes next in a stream; None where there are too many streams."""
        expected = self._next.get(received.stream)
        if expected is None:
            if len(self._next) >= _MAX_STREAMS:
                return None
            self._topics.setdefault(topic, set()).add(received.stream)
            expected = 0 if self._from_start else received.seq
        return expected

    def _skip(self, topic: bytes, seq: int) -> None:
        """A message without events is not a gap, if its stream is known."""
        for stream in self._topics.get(topic, ()):
            if self._next.get(stream) == seq:
                self._next[stream] = seq + 1

    # ---- what was missed

    def _recover(self, received: Received, topic: bytes, expected: int) -> int:
        """Puts the messages from `expected` on before `received`, as far as they can be had. How many cannot."""
        counts, missing = self._counts, received.seq - expected
        counts.gaps += 1
        counts.missed += missing
        got = 0
        if self._replay_endpoint is not None:
            last = expected - 1
            for seq, payload in self._replay(topic, expected, received.seq):
                old = self._decode(topic, seq, payload, replayed=True)
                got += 1
                # Messages of another rank that shares the topic and the socket are not this stream's.
                if old is None or old.stream != received.stream:
                    continue
                self._ready.append(replace(old, lost=seq - last - 1))
                last = seq
            counts.recovered += got
            counts.lost += missing - got
            return received.seq - last - 1
        counts.lost += missing
        return missing

    def _replay(self, topic: bytes, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The messages of [first, end) in the replay socket, in order, each once."""
        socket = self._context.socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD)
            socket.connect(self._replay_endpoint)
            socket.send_multipart((b"", first.to_bytes(8, "big")))
            until, budget = time.monotonic() + self._replay_timeout, _MAX_REPLAY_BYTES
            while budget > 0:
                left = until - time.monotonic()
                if left <= 0 or not socket.poll(int(left * 1000)):
                    return
                frames = socket.recv_multipart()
                if len(frames) != 4 or len(frames[2]) != 8:
                    self._counts.malformed += 1
                    budget -= 4096
                    continue
                if frames[2] == _END:
                    return
                budget -= 64 + len(frames[3])
                seq = int.from_bytes(frames[2], "big")
                if frames[1] == topic and first <= seq < end:
                    first = seq + 1
                    yield seq, frames[3]
        except zmq.ZMQError as error:
            self._counts.last_problem = f"replay: {error}"
        finally:
            socket.close()
