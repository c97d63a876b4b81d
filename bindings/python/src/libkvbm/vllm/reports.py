"""Reports of vLLM's workers to its scheduler's side after each step, with the computing speed of prompts."""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Iterable, Optional

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata


@dataclass
class Report(OffloadingWorkerMetadata):  # type: ignore[misc]
    """`prompts` are, by pipeline stage, tokens of prompts and the nanoseconds that they took: of several ranks of one
    stage those of the slowest, for which the others wait."""

    prompts: dict[int, tuple[int, int]] = field(default_factory=dict)

    def aggregate(self, other: Any) -> Report:
        """vLLM's own makes one of its own class of two of them."""
        both = _with(super().aggregate(other), dict(self.prompts))
        for stage, (tokens, ns) in getattr(other, "prompts", {}).items():
            mine = both.prompts.get(stage)
            if mine is None or ns * mine[0] > mine[1] * tokens:
                both.prompts[stage] = (tokens, ns)
        return both


def report(made: Any, stage: int, steps: Iterable[tuple[int, int]]) -> Optional[Any]:
    """The report of vLLM's worker plus the measurements since; None: empty."""
    tokens, ns = 0, 0
    for step_tokens, step_ns in steps:
        tokens, ns = tokens + step_tokens, ns + step_ns
    if made is None and not tokens:
        return None
    return _with(made, {stage: (tokens, ns)} if tokens else {})


def _with(made: Any, prompts: dict[int, tuple[int, int]]) -> Report:
    given = {} if made is None else {one.name: getattr(made, one.name) for one in fields(made) if one.name != "prompts"}
    return Report(**given, prompts=prompts)
