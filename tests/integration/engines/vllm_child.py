"""A vLLM engine in a process of its own, driven by lines of JSON: see engine.py. Everything that vLLM prints goes to
standard error; the answers go to the descriptor that the parent named."""
from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import traceback
from typing import Any

ANSWERS = int(sys.argv[1])


def answer(**fields: Any) -> None:
    os.write(ANSWERS, (json.dumps(fields) + "\n").encode())


class Child:
    def __init__(self, arguments: dict[str, Any]) -> None:
        from vllm import LLM

        self.llm = LLM(**arguments)

    # ---- what the parent asks for; each returns something that JSON can say

    def generate(self, prompts: list[Any], max_tokens: int = 8, logprobs: int | None = None, salt: str | None = None,
                 adapter: list[Any] | None = None, **sampling: Any) -> list[dict[str, Any]]:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        options = {"temperature": 0, "ignore_eos": True, "detokenize": False} | sampling
        given: list[Any] = []
        for prompt in prompts:
            item = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}
            given.append(item | ({"cache_salt": salt} if salt is not None else {}))
        began = time.perf_counter()
        outputs = self.llm.generate(given, SamplingParams(max_tokens=max_tokens, logprobs=logprobs, **options),
                                    use_tqdm=False, lora_request=LoRARequest(*adapter) if adapter else None)
        seconds = time.perf_counter() - began
        return [_output(output) | {"seconds": seconds} for output in outputs]

    def reset(self, connector: bool = False) -> bool:
        """Forgets vLLM's own prefix cache; with `connector` also asks the connector to forget."""
        if connector:
            return bool(self.llm.reset_prefix_cache(reset_connector=True))
        return bool(self.llm.reset_prefix_cache())

    def metrics(self) -> dict[str, float]:
        """Counters, gauges, and how often histograms were observed (name_count); those with labels beside the engine's
        own as name{label=value}."""
        found: dict[str, float] = {}
        for metric in self.llm.get_metrics():
            labels = {k: v for k, v in metric.labels.items() if k not in ("engine", "model_name")}
            name = metric.name + ("{" + ",".join(f"{k}={v}" for k, v in sorted(labels.items())) + "}" if labels else "")
            value = getattr(metric, "value", None)
            if value is None and hasattr(metric, "count"):
                name, value = f"{name}_count", metric.count
            if value is not None:
                found[name] = found.get(name, 0) + value
        return found

    def kv(self) -> dict[str, str]:
        """Of every block in vLLM's prefix cache: its hash -> a hash of its bytes in all layers."""
        import torch

        core = self.core()
        tensors = _tensors(core)
        found = {}
        for block in core.scheduler.kv_cache_manager.block_pool.blocks:
            if block.block_hash is not None:
                digest = hashlib.sha256()
                for tensor in tensors:
                    digest.update(tensor[block.block_id].contiguous().view(torch.uint8).numpy().tobytes())
                found[bytes(block.block_hash).hex()] = digest.hexdigest()
        return found

    def blocks(self) -> int:
        """Blocks of the KV space."""
        return len(self.core().scheduler.kv_cache_manager.block_pool.blocks)

    def run(self, code: str) -> Any:
        """Executes Python with `llm` and `child`; `result` is the answer."""
        scope: dict[str, Any] = {"llm": self.llm, "child": self}
        exec(code, scope)
        return scope.get("result")

    def core(self) -> Any:
        """vLLM's engine core; it is in this process unless VLLM_ENABLE_V1_MULTIPROCESSING=1."""
        return self.llm.llm_engine.engine_core.engine_core


def _tensors(core: Any) -> list[Any]:
    runner = core.model_executor.driver_worker.worker.model_runner
    return [tensor for tensor in runner.kv_caches if tensor is not None]


def _output(output: Any) -> dict[str, Any]:
    told = output.outputs[0]
    chosen = None
    if told.logprobs is not None:
        chosen = [step[token].logprob for token, step in zip(told.token_ids, told.logprobs)]
    metrics = output.metrics
    first = getattr(metrics, "first_token_latency", None) if metrics is not None else None
    return {"tokens": list(told.token_ids), "text": told.text, "logprobs": chosen, "cached": output.num_cached_tokens,
            "first_token_s": first, "finish": told.finish_reason}


def main() -> None:
    child: Child | None = None
    for line in sys.stdin:
        request = json.loads(line)
        what = request.pop("do")
        try:
            if what == "start":
                child = Child(request["llm"])
                answer(result=None)
            elif what == "stop":
                break
            else:
                answer(result=getattr(child, what)(**request))
        except BaseException as error:  # the parent decides what an error means
            traceback.print_exc()
            answer(error=f"{type(error).__name__}: {error}")
            if what == "start":
                raise SystemExit(1) from None
    # vLLM's engine is ended in order, so that what is in flight is finished.
    if child is not None:
        child.llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
