"""Pages per second of batch_set_v1 and batch_get_v1, against a memcpy of the same bytes and SGLang's own file backend.

    python compare.py [--layout page_first] [--pages 128] [--rounds 5] [--page-mib 1]

Everything runs in one process, turn by turn, and ratios are of the medians of this run: on a shared machine only they
mean something. Files of the file backend go to --directory; they are in the page cache when they are read again.
"""
from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

for name in [name for name in os.environ if name.startswith("KVBM_")]:
    del os.environ[name]
sys.path.insert(0, str(Path(__file__).resolve().parents[5] / "bindings" / "python" / "tests" / "engines"))
warnings.simplefilter("ignore")

import sglang_pools as p  # noqa: E402
from sglang_pools import torch  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import HiCacheFile  # noqa: E402

HEADS, DIM, TOKENS = 8, 128, 64


def pool_of(layout, pages, page_bytes):
    layers = max(page_bytes // (2 * TOKENS * HEADS * DIM * 2), 1)
    device = p.MHATokenToKVPool(TOKENS * 4, TOKENS, torch.bfloat16, HEADS, DIM, layers, "cpu", False, start_layer=0,
                                end_layer=layers)
    cls, info, more = p._mha_host_inputs(device)
    more["device_capacity_tokens"] = TOKENS * pages
    with p.host_memory_budget_scope(8 << 30):
        return cls(info, 1.0, 0, TOKENS, layout, pin_memory=False, **more)


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", default="page_first", choices=p.MHA_LAYOUTS[:4])
    parser.add_argument("--pages", type=int, default=128)
    parser.add_argument("--page-mib", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the file backend keeps its files; a temporary directory")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pool = pool_of(options.layout, options.pages, options.page_mib << 20)
    page = pool.get_dummy_flat_data_page().nbytes
    room = f"{2 * options.pages * page // (1 << 20) + 64}MiB"
    slots = p.slots(pool, *range(options.pages))
    copy = torch.zeros_like(pool.kv_buffer)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = directory
        ours = p.backend(pool, options=p.extra(settings={"host.capacity": room, "host.touch_threads": 1}))
        file = HiCacheFile(p.config(options={"unused": 0}))
        times = {}
        for turn in range(-1, options.rounds):
            keys = p.page_keys(options.pages, str(turn))
            p.scramble(pool, turn + 1) if turn < 0 else pool.kv_buffer[:, :1].add_(1)
            rows = {"memcpy": timed(lambda: copy.copy_(pool.kv_buffer)),
                    "kvbm set": timed(lambda: check(ours.batch_set_v1(keys, slots))),
                    "kvbm get": timed(lambda: check(ours.batch_get_v1(keys, slots))),
                    "file set": timed(lambda: check([file_set(file, pool, keys, slots)])),
                    "file get": timed(lambda: check(file_get(file, pool, keys, slots)))}
            file.clear()
            if turn >= 0:
                for what, seconds in rows.items():
                    times.setdefault(what, []).append(seconds)
        ours.close()
    report(options, page, pool, times)


def file_set(file, pool, keys, slots):
    """As SGLang's controller does it for backends without the zero-copy interface."""
    return file.batch_set(keys, [pool.get_data_page(int(slot)) for slot in slots[::TOKENS]])


def file_get(file, pool, keys, slots):
    pages = file.batch_get(keys, [pool.get_dummy_flat_data_page() for _ in keys])
    for slot, page in zip(slots[::TOKENS], pages):
        pool.set_from_flat_data_page(int(slot), page)
    return [page is not None for page in pages]


def check(done):
    assert all(done), "not every page was stored or loaded"


def report(options, page, pool, times):
    median = {what: statistics.median(seconds) for what, seconds in times.items()}
    size = {what: options.pages * page for what in median}
    size["memcpy"] = pool.kv_buffer.nbytes
    rate = {what: size[what] / seconds / 1e9 for what, seconds in median.items()}
    print(f"{options.layout}, {options.pages} pages of {page} bytes, medians of {options.rounds} rounds")
    for what, value in rate.items():
        spread = max(times[what]) / min(times[what])
        other = f"  {value / rate['file' + what[4:]]:5.2f} of file" if what.startswith("kvbm") else ""
        ratio = value / rate["memcpy"]
        print(f"  {what:9} {value:6.2f} GB/s  {ratio:5.2f} of memcpy{other}  (slowest/fastest {spread:.2f})")


if __name__ == "__main__":
    main()
