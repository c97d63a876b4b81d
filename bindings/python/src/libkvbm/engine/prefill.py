"""How quickly an engine computes prompts, so that loads that would be slower are left to it."""
from __future__ import annotations

import threading


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
        """What a block takes: `compute_block_ns` of a load. 0, as long as nothing was measured: then all is loaded."""
        with self._lock:
            return int(self._ns / self._tokens * block_tokens) if self._tokens else 0
