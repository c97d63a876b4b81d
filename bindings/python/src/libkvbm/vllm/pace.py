"""An engine that has nothing to compute asks again at once, and takes the processor from the copies that it waits for."""
from __future__ import annotations

import time

# How long such an engine is made to wait for what it asked for.
REST_NS = 500_000
# A step that computes anything takes longer than this, in models for which keeping KV is worth while.
_STEP_NS = 2_000_000


class Pace:
    """Tells whether the engine computed between two calls, which vLLM's workers and tiers are not told. Thread: the
    caller's one."""

    def __init__(self) -> None:
        self._last = 0

    def idle(self) -> bool:
        """Call it once a step, and rested() after a wait."""
        last, self._last = self._last, time.monotonic_ns()
        return self._last - last < _STEP_NS

    def rested(self) -> None:
        self._last = time.monotonic_ns()
