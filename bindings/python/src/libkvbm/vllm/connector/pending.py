"""Stores that have been ordered and not heard of since: what they store is found a moment later."""
from __future__ import annotations

import math
import time
from typing import Iterable

# Limit of the time that a repeated prompt waits for its stores. After it stores without a report count as ended: a copy
# into host memory takes milliseconds, and waiting must not cost more than computing.
_LONGEST_S = 1.0


class Pending:
    """By group of layers and hash. Thread: the scheduler's."""

    def __init__(self) -> None:
        self._ordered: dict[tuple[int, bytes], float] = {}  # -> when it is over at the latest, in that order
        self._fresh: list[tuple[int, bytes]] = []  # ordered for the step that has not ended yet
        self._waiting: dict[str, float] = {}  # request -> until when

    def order(self, group: int, hashes: Iterable[bytes]) -> None:
        now = time.monotonic()
        while self._ordered and next(iter(self._ordered.values())) < now:
            del self._ordered[next(iter(self._ordered))]
        for name in hashes:
            self._ordered.pop((group, name), None)
            self._ordered[group, name] = math.inf
            self._fresh.append((group, name))

    def submitted(self) -> None:
        """The step for which stores were ordered has ended, and they have been submitted: from now on they take time.
        A step may compute for many seconds before."""
        until = time.monotonic() + _LONGEST_S
        for key in self._fresh:
            if self._ordered.pop(key, None) is not None:
                self._ordered[key] = until
        self._fresh.clear()

    def ended(self, group: int, hashes: Iterable[bytes]) -> None:
        for name in hashes:
            self._ordered.pop((group, name), None)

    def wait(self, request: str, group: int, name: bytes) -> bool:
        """Whether a request that wants this block next is to ask again."""
        now = time.monotonic()
        if self._ordered.get((group, name), 0.0) < now:
            return False
        return now < self._waiting.setdefault(request, now + _LONGEST_S)

    def forget(self, request: str) -> None:
        self._waiting.pop(request, None)

    def clear(self) -> None:
        self._ordered.clear()
        self._fresh.clear()
