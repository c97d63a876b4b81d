"""Runs inside an engine's process: one request decodes all the time while others come, one after the other, and every
step is timed."""
from __future__ import annotations

import time
from typing import Any, Callable, Sequence

# Decode steps between one prompt's end and the next prompt: stores and loads of it run while they do.
GAP = 8


class Watch:
    """Measures the time that scheduling took in each step."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._own = scheduler.schedule, scheduler.update_from_output
        self.spent = 0.0

    def __enter__(self) -> Watch:
        self._scheduler.schedule, self._scheduler.update_from_output = map(self._timed, self._own)
        return self

    def __exit__(self, *_: object) -> None:
        self._scheduler.schedule, self._scheduler.update_from_output = self._own

    def _timed(self, body: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return body(*given, **named)
            finally:
                self.spent += time.perf_counter() - began

        return call


def run(llm: Any, prompts: Sequence[Sequence[int]]) -> dict[str, list[float]]:
    """Seconds: of each step, of the scheduling in it, and between two tokens of the long request."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    options = {"temperature": 0, "ignore_eos": True, "detokenize": False}
    left = list(prompts)
    found: dict[str, list[float]] = {"step": [], "schedule": [], "token": []}
    engine.add_request("long", {"prompt_token_ids": list(range(50, 114))}, SamplingParams(max_tokens=1900, **options))
    tokens, last, wait, running = 0, 0.0, GAP, False
    with Watch(engine.engine_core.engine_core.scheduler) as watch:
        while left or running or wait:
            if not running and tokens:
                wait -= 1
                if wait <= 0 and left:
                    engine.add_request(f"short-{len(left)}", {"prompt_token_ids": list(left.pop(0))},
                                       SamplingParams(max_tokens=1, **options))
                    running = True
            watch.spent, began = 0.0, time.perf_counter()
            outputs = engine.step()
            now = time.perf_counter()
            if tokens:  # its own prompt is not part of it
                found["step"].append(now - began)
                found["schedule"].append(watch.spent)
            for output in outputs:
                if output.request_id != "long":
                    running, wait = not output.finished, GAP
                    continue
                if len(output.outputs[0].token_ids) > tokens:
                    tokens = len(output.outputs[0].token_ids)
                    if last:
                        found["token"].append(now - last)
                    last = now
                if output.finished:
                    raise RuntimeError("the long request came to its end before the others did")
    engine.abort_request(["long"])
    while engine.has_unfinished_requests():
        engine.step()
    return found
