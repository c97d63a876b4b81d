"""Helpers of the tests of the KV connector."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from engine import Engine, Output

# Of log-probabilities of one token that is computed in pieces of other sizes: logits of 16 and more are 0.125 apart in
# bfloat16. That the KV itself is right is said by its bytes.
NOISE = 0.2


def transfer(role: str = "kv_both", policy: str = "recompute", **extra: Any) -> dict[str, Any]:
    settings = {"host.capacity": "64MiB", **extra.pop("settings", {})}
    return {"kv_transfer_config": {
        "kv_connector": "KvbmConnector", "kv_connector_module_path": "libkvbm.vllm.connector", "kv_role": role,
        "kv_load_failure_policy": policy, "kv_connector_extra_config": {"settings": settings, **extra}}}


def disk(path: Path, **extra: Any) -> dict[str, Any]:
    return {"disk": str(path), "disk_capacity": "256MiB", **extra}


def prompt(length: int, seed: int = 0) -> list[int]:
    """Tokens without a period, all different for other seeds."""
    state, tokens = 12345 + 7919 * seed, []
    for _ in range(length):
        state = (state * 1103515245 + 12345) % (1 << 31)
        tokens.append(3 + (state >> 8) % 490)
    return tokens


def same(a: Output, b: Output) -> None:
    assert a.agrees(b, NOISE), (a, b)


def same_kv(a: dict[str, str], b: dict[str, str], at_least: int, recomputed: int = 0) -> None:
    """Blocks of equal hashes have equal bytes, but for as many into which a token was computed again."""
    common = set(a) & set(b)
    assert len(common) >= at_least, (len(a), len(b), len(common))
    other = [name for name in common if a[name] != b[name]]
    assert len(other) <= recomputed, (other, len(common))


def count(engine: Engine, name: str) -> float:
    return engine.metric(f"vllm:kvbm_{name}")


def flush(engine: Engine) -> None:
    """Waits until everything that was stored is on the disk: a test that reads it must."""
    engine.run("from libkvbm.vllm.connector import engines\n"
               "for workers in engines._workers.values():\n"
               "    for worker in workers:\n"
               "        worker.results(False)\n"
               "        worker.tiers.manager.flush(20_000_000_000)\n")


HANDOFF = '''
from vllm import SamplingParams
sampling = SamplingParams(max_tokens={n}, temperature=0, detokenize=False, ignore_eos=True, logprobs=0,
                          extra_args={{"kv_transfer_params": {params!r}}})
o = llm.generate([{{"prompt_token_ids": {prompt!r}}}], sampling, use_tqdm=False)[0]
told = o.outputs[0]
result = {{"params": o.kv_transfer_params, "tokens": list(told.token_ids), "cached": o.num_cached_tokens,
          "logprobs": [step[token].logprob for token, step in zip(told.token_ids, told.logprobs)]}}
'''


def ask(engine: Engine, tokens: list[int], n: int, params: Optional[dict[str, Any]] = None,
        timeout_s: float = 120) -> tuple[Output, Optional[dict[str, Any]]]:
    """generate with kv_transfer_params; also returns those of the answer."""
    found = engine.run(HANDOFF.format(n=n, params=params, prompt=tokens), timeout_s=timeout_s)
    output = Output(found["tokens"], "", found["logprobs"], found["cached"], None, "", 0.0)
    return output, found["params"]
