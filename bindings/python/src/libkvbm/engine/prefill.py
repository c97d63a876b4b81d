"""How quickly an engine computes prompts, so that loads that would be slower are left to it."""
from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Callable, Hashable, Iterable, Protocol


class Speed(Protocol):
    """The times with which loads are compared."""

    def block_ns(self, block_tokens: int) -> int: ...


class PrefillSpeed:
    """The time a prompt's tokens take, from the steps that computed some: `measured` after each, `block_ns` before a
    load. Time and tokens are summed, each step weighing four fifths of the next, so that long steps count for what they
    are and the last ones count most. Thread: any."""

    _KEEP = 0.8

    def __init__(self, least_tokens: int = 32) -> None:
        """Steps of fewer prompt tokens are not counted: what they take is the step itself."""
        self._least = least_tokens
        self._lock = threading.Lock()
        self._tokens = 0.0
        self._ns = 0.0

    def measured(self, tokens: int, ns: int) -> None:
        """A step computed so many tokens of prompts, and little else, in this time."""
        if tokens < self._least or ns <= 0:
            return
        with self._lock:
            self._tokens = self._tokens * self._KEEP + tokens
            self._ns = self._ns * self._KEEP + ns

    def block_ns(self, block_tokens: int) -> int:
        """Computing time of a block: `compute_block_ns` of a load. 0 until one was measured: then all blocks are
        loaded."""
        with self._lock:
            return int(self._ns / self._tokens * block_tokens) if self._tokens else 0


@dataclass(eq=False)
class _Answer:
    """One "not there": when it was given, how much of what it named has been stored since, and what that took."""

    at: int
    amount: int = 0
    names: int = 0
    ns_each: float = math.inf


class MissedSpeed:
    """As PrefillSpeed, for engines that do not report what they compute. They compute an object between the answer that
    it is missing and its store. That time includes waiting and copying, so it is an upper bound of the computing time.
    A load that is slower than it is slower in any case. The result is the lower quartile of the last times, which
    excludes waiting. Of several answers about one name the first counts, because later ones come while it is being
    computed. Amounts are in one unit of the caller, blocks or bytes. Thread: any."""

    _KEPT = 32
    _LEAST = 4
    _MOST_NAMES = 1 << 16

    def __init__(self, least_names: int = 2, now: Callable[[], int] = time.monotonic_ns) -> None:
        """Answers about fewer names are not counted: what they take is the step itself."""
        self._least_names = least_names
        self._now = now
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, _Answer] = {}
        self._known: deque[_Answer] = deque(maxlen=self._KEPT)

    def missed(self, names: Iterable[Hashable]) -> None:
        """Records that the engine got a miss for these, and will compute them."""
        answer = _Answer(self._now())
        with self._lock:
            for name in names:
                self._waiting.setdefault(name, answer)
            while len(self._waiting) > self._MOST_NAMES:
                del self._waiting[next(iter(self._waiting))]

    def stored(self, amounts: Iterable[tuple[Hashable, int]]) -> None:
        """The engine gives these to be stored: (name, how much it is)."""
        now = self._now()
        with self._lock:
            touched = set()
            for name, amount in amounts:
                answer = self._waiting.pop(name, None)
                if answer is not None and amount > 0:
                    answer.amount += amount
                    answer.names += 1
                    touched.add(answer)
            for answer in touched:
                # A prompt is stored in several calls, of which only the last says what all of it took.
                if answer.names >= self._least_names and now > answer.at:
                    if math.isinf(answer.ns_each):
                        self._known.append(answer)
                    answer.ns_each = min(answer.ns_each, (now - answer.at) / answer.amount)

    def block_ns(self, amount: int) -> int:
        """Upper bound of the computing time of an amount; 0 until enough is known: then everything is loaded."""
        with self._lock:
            known = sorted(answer.ns_each for answer in self._known)
        return int(known[(len(known) - 1) // 4] * amount) if len(known) >= self._LEAST else 0
