"""A process with a manager of its own: child.py '{"given": {...}, "spec": {...}, "do": [["put", 8], ["get", 8]]}'.

Prints the results as one line of JSON. "wait" prints what there is so far and waits for a line of input.
"""
from __future__ import annotations

import json
import sys

import torch.distributed as dist
from serving import block_spec, serving


def main() -> None:
    job = json.loads(sys.argv[1])
    results: list[object] = []
    group = None
    if job.get("group"):
        meeting, rank, ranks = job["group"]
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        group = dist.group.WORLD
    with serving(block_spec(**job.get("spec", {})), job.get("seed", "weights"), group, **job["given"]) as it:
        for name, *arguments in job["do"]:
            if name == "put":
                status = it.put(*arguments)
                results.append(status.get() // 16 if status.is_ok() else str(status.error_code.name))
            elif name == "get":
                results.append(list(it.get(*arguments)))
            elif name == "flush":
                results.append(it.kvbm.flush(60_000_000_000))
            elif name == "delete":  # one block, of this process alone
                results.append(it.call(it.backend.delete(it.keys(arguments[0] + 1)[-1])).error_code.name)
            elif name == "wait":
                print(json.dumps(results), flush=True)
                sys.stdin.readline()
            else:
                raise ValueError(name)
    print(json.dumps(results), flush=True)


main()
