"""Time to first token of a prompt that libkvbm has, and of one that has to be computed, alternating in one engine."""
from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path

from engine import Engine
from hooks import HOOKS, kv_transfer

BLOCK = 32


def measure(engine: Engine, tokens: int, repeats: int) -> dict[str, list[float]]:
    chosen = random.Random(0)
    times: dict[str, list[float]] = {"computed": [], "loaded": []}
    for i in range(repeats + 1):
        prompt = [chosen.randrange(100, 40_000) for _ in range(tokens)]
        first = engine.generate([prompt], 4)[0]
        engine.generate([[1, 2, 3]], 4)  # vLLM stores with the steps that follow
        engine.reset(connector=True)  # vLLM's own pool forgets, too: what comes back is libkvbm's
        again = engine.generate([prompt], 4)[0]
        engine.reset()
        assert first.cached == 0 and again.cached >= (tokens - 1) // BLOCK * BLOCK, (first.cached, again.cached)
        if i > 0:  # the first of each is slower: buffers are made
            times["computed"].append(first.first_token_s or 0.0)
            times["loaded"].append(again.first_token_s or 0.0)
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--hook", choices=HOOKS, default="direct")
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ttft-") as disk:
        transfer = kv_transfer(asked.hook, Path(disk) / "disk", host="512MiB", pool="512MiB")
        with Engine(asked.model, {"kv_transfer_config": transfer}) as engine:
            times = measure(engine, asked.tokens, asked.repeats)
    medians = {name: round(statistics.median(found), 4) for name, found in times.items()}
    print(json.dumps({"hook": asked.hook, "tokens": asked.tokens, "repeats": asked.repeats, "median_s": medians,
                      "times_faster": round(medians["computed"] / medians["loaded"], 2),
                      "all_s": {name: [round(x, 4) for x in found] for name, found in times.items()}}, indent=1))


if __name__ == "__main__":
    main()
