"""An engine that has nothing to compute asks again at once, and takes the processor from the copies that it waits for."""
from __future__ import annotations

import time
from typing import Any, Mapping

from ..engine import PrefillSpeed

# How long such an engine is made to wait for what it asked for.
REST_NS = 500_000
# A step that computes anything takes longer than this, in models for which keeping KV is worth while.
_STEP_NS = 2_000_000


class Pace:
    """Detects whether the engine computed between two calls, which vLLM does not report to its workers and tiers.
    Thread: the caller's one."""

    def __init__(self) -> None:
        self._last = 0

    def idle(self) -> bool:
        """Call it once a step, and rested() after a wait."""
        last, self._last = self._last, time.monotonic_ns()
        return self._last - last < _STEP_NS

    def rested(self) -> None:
        self._last = time.monotonic_ns()


class PipelineSpeed:
    """How quickly an engine computes prompts, of what its workers report: the slowest rank of each pipeline stage, and a
    prompt goes through all stages. Thread: any."""

    def __init__(self, stages: int = 1) -> None:
        self._stages = [PrefillSpeed() for _ in range(stages)]

    def measured(self, stage: int, tokens: int, ns: int) -> None:
        if 0 <= stage < len(self._stages):
            self._stages[stage].measured(tokens, ns)

    def block_ns(self, block_tokens: int) -> int:
        """Computing time of a block in all stages; 0 until every stage has reported."""
        each = [stage.block_ns(block_tokens) for stage in self._stages]
        return sum(each) if all(each) else 0


def prompt_tokens(output: Any, requests: Mapping[str, Any]) -> int:
    """Tokens of prompts in a step that computes little else: what it takes says how quickly prompts are computed."""
    tokens = 0
    for name, n in output.num_scheduled_tokens.items():
        request = requests.get(name)
        if request is not None and int(request.num_computed_tokens) < int(request.num_tokens) - 1:
            tokens += n
    return tokens if 8 * tokens >= 7 * output.total_num_scheduled_tokens else 0
