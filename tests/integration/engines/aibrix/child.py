"""A process with a manager of its own: child.py '{"given": {...}, "spec": {...}, "do": [["put", 8], ["get", 8]]}'.

Prints the results as one line of JSON. "wait" prints what there is so far and waits for a line of input.
"""
from __future__ import annotations

import json
import sys

from serving import block_spec, serving


def main() -> None:
    job = json.loads(sys.argv[1])
    results: list[object] = []
    with serving(block_spec(**job.get("spec", {})), job.get("seed", "weights"), **job["given"]) as it:
        for name, *arguments in job["do"]:
            if name == "put":
                status = it.put(*arguments)
                results.append(status.get() // 16 if status.is_ok() else str(status.error_code.name))
            elif name == "get":
                results.append(list(it.get(*arguments)))
            elif name == "flush":
                results.append(it.kvbm.flush(60_000_000_000))
            elif name == "hits":  # of the host tier, then of those below
                results.append([tier.hits for tier in it.kvbm.stats().tiers])
            elif name == "prefetch":
                results.append(it.call(it.manager._l2_cache.prefetch(None, it.tokens(*arguments))).error_code.name)
            elif name == "role":
                results.append(it.kvbm.share().role)
            elif name == "wait":
                print(json.dumps(results), flush=True)
                sys.stdin.readline()
            else:
                raise ValueError(name)
    print(json.dumps(results), flush=True)


main()
