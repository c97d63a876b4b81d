"""Puts and gets of AIBrix's manager on its backends, as ratios to memcpy of the same bytes in the same run:

    python bench/backends.py [--block-kib 128 2048] [--rounds 7] [--directory /dev/shm]

L1 is off, so that every call reaches the backend. A round does each backend once, in turn; medians over rounds. MOCK
is AIBrix's dictionary in process, SHFS its files (in --directory), ROCKSDB its embedded store.
"""
from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).parents[1]))
warnings.simplefilter("ignore")

import torch  # noqa: E402
from serving import TOKENS, Serving, block_spec, serving  # noqa: E402


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of all threads of this process."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def get(it: Serving, n: int, prompt: int) -> None:
    tokens, handle = it.manager.acquire(None, it.tokens(n, prompt)).get()
    assert tokens == n * TOKENS
    handle.release()


def measure(kib: int, rounds: int, directory: str) -> None:
    n = min(256, max(16, 65536 // kib))
    spec = block_spec(dim=kib * 1024 // (2 * TOKENS * 4 * 2 * 2))
    assert spec.block_nbytes == kib * 1024
    source, target = (torch.randint(0, 255, (n * spec.block_nbytes,), dtype=torch.uint8) for _ in range(2))
    capacity = (rounds + 4) * n * (spec.block_nbytes + 4096) + (8 << 20)
    place = tempfile.mkdtemp(dir=directory)
    # Fresh pages are faulted in at start, as docs/engines/aibrix.md has it.
    own = {"KVBM_HOST_CAPACITY": capacity, "KVBM_WEIGH": "0", "KVBM_SETTINGS": '{"host.touch_threads": 2}'}
    backends = {"KVBM": own, "KVBM zero copy": {**own, "KVBM_USE_ZERO_COPY": 1},
                "MOCK": {"L2_CACHE_BACKEND": "MOCK", "MOCK_USE_MPUT_MGET": 1},
                "SHFS": {"L2_CACHE_BACKEND": "SHFS", "SHFS_ROOT": place + "/shfs"},
                "ROCKSDB": {"L2_CACHE_BACKEND": "ROCKSDB", "ROCKSDB_ROOT": place + "/rocksdb"}}
    times: dict[str, dict[str, list[tuple[float, float]]]] = {
        name: {"put": [], "get": []} for name in (*backends, "memcpy")}
    try:
        with ExitStack() as stack:
            managers = {}
            for name, given in backends.items():
                try:
                    managers[name] = stack.enter_context(serving(spec, **given))
                except Exception as error:
                    print(f"{name} is left out: {type(error).__name__}: {error}")
            for it in managers.values():
                # AIBrix takes fresh memory as long as its slab has some. With three batches of it the rounds use it
                # again, and page faults of the slab are measured for no backend.
                it.manager._allocator._free_pool[0].length = 3 * n * spec.block_nbytes
            for number in range(rounds + 3):
                copied = timed(lambda: target.copy_(source))
                for name, it in managers.items():
                    tokens = it.tokens(n, number)
                    handle = it.manager.allocate_for(None, tokens).get()
                    for tensor in handle.to_tensors():
                        tensor.fill_(number)

                    def put() -> None:
                        it.manager.put(None, tokens, handle).raise_if_not_ok()
                        it.manager.flush()

                    spent = timed(put)
                    again = timed(lambda: get(it, n, number))
                    if number > 2:  # the first rounds warm up
                        times[name]["put"].append(spent)
                        times[name]["get"].append(again)
                if number > 2:
                    times["memcpy"]["put"].append(copied)
                    times["memcpy"]["get"].append(copied)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    def median(name: str, what: str, which: int) -> float:
        return statistics.median(pair[which] for pair in times[name][what])

    clock, used = (median("memcpy", "put", which) for which in (0, 1))
    print(f"{n} blocks of {kib} KiB; memcpy {n * spec.block_nbytes / clock / 1e9:.1f} GB/s; "
          "times of memcpy by the clock (and in CPU time)")
    for name in managers:
        said = [f"{what} {median(name, what, 0) / clock:6.2f} ({median(name, what, 1) / used:6.2f})"
                for what in ("put", "get")]
        print(f"  {name:15} {'   '.join(said)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--block-kib", type=int, nargs="+", default=[128, 2048])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", default="/dev/shm")
    given = parser.parse_args()
    for kib in given.block_kib:
        measure(kib, given.rounds, given.directory)


main()
