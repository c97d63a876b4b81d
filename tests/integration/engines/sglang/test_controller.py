"""SGLang's cache controller with its storage threads, and libkvbm under it."""
from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sglang_pools as p
from sglang_pools import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageFailureInjector

from libkvbm.sglang import KvbmStorage

LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
TOKENS = list(range(1000, 1000 + 6 * p.PAGE))


def filled(one, tokens=TOKENS, seed=0):
    """Slots with random bytes, as if computed, and a copy of each page."""
    slots = one.host.alloc(len(tokens))
    p.scramble(one.host, seed)
    return slots, [one.page(slot).clone() for slot in slots[::p.PAGE]]


def same(one, slots, pages):
    return all(torch.equal(one.page(slot), page) for slot, page in zip(slots[::p.PAGE], pages))


@pytest.mark.parametrize("zero_copy", [1, 0])
@pytest.mark.parametrize("layout, mla", [(layout, False) for layout in LAYOUTS] +
                         [(layout, True) for layout in LAYOUTS[:3]])
def test_a_prompt_comes_back_after_the_memory_was_used_for_others(engine, layout, mla, zero_copy):
    one = engine(layout, mla=mla, options=p.extra(interface_v1=zero_copy))
    assert isinstance(one.backend, KvbmStorage)
    slots, pages = filled(one)
    assert one.store(TOKENS, slots) == len(TOKENS)
    one.host.free(slots)
    p.wipe(one.host)
    other = TOKENS[:4 * p.PAGE] + [7] * (2 * p.PAGE)
    for tokens, expected in ((TOKENS, 6), (other, 4), ([7] * 32, 0)):
        done, where = one.prefetch("r", tokens)
        assert done == expected * p.PAGE
        if expected:
            assert same(one, where[:done], pages)
            one.host.free(where)


def test_backup_and_prefetch_threads_at_the_same_time(engine):
    """Prompts are stored while others are prefetched; each byte that is said to be there is right."""
    one = engine(options=p.extra(settings={"host.capacity": "4MiB"}))
    prompts = [[1 + i] * 2 * p.PAGE for i in range(24)]
    contents = {}

    def fill(i, slots):
        random = torch.Generator().manual_seed(i)
        for tensor_slots in slots.split(p.PAGE):
            page = torch.randint(0, 256, (one.host.get_dummy_flat_data_page().nbytes,), dtype=torch.uint8,
                                 generator=random)
            one.host.set_from_flat_data_page(int(tensor_slots[0]), page.view(one.host.dtype))
            contents.setdefault(i, []).append(page)

    wrong, hits = [], 0
    for i, prompt in enumerate(prompts):
        slots = one.host.alloc(len(prompt))
        fill(i, slots)
        one.store(prompt, slots, wait=False)
        for j in range(max(i - 3, 0), i + 1):
            done, where = one.prefetch(f"{i}/{j}", prompts[j])
            hits += done
            for k in range(done // p.PAGE):
                if not torch.equal(one.page(where[k * p.PAGE]), contents[j][k]):
                    wrong.append((i, j, k))
            if where is not None:
                one.host.free(where)
        assert one.controller.ack_backup_queue.get(timeout=60).completed_tokens == len(prompt)
        one.host.free(slots)
    assert not wrong and hits > len(prompts) * p.PAGE


def test_detach_while_a_prefetch_is_under_way_and_attach_again(engine, tmp_path):
    options = p.extra(disk=str(tmp_path / "disk"), disk_capacity="64MiB")
    one = engine(options=options)
    slots, pages = filled(one)
    assert one.store(TOKENS, slots) == len(TOKENS)
    load = one.backend._stores["kv"].load
    inside = threading.Event()

    def slow(*arguments):
        inside.set()
        time.sleep(0.3)
        return load(*arguments)

    one.backend._stores["kv"].load = slow
    one.controller.prefetch("r", TOKENS, None, [])
    operation = one.controller.prefetch_hit_queue.get(timeout=60)
    operation.host_indices = one.host.alloc(len(TOKENS))
    one.controller.prefetch_buffer.put(operation)
    assert inside.wait(60)
    one.controller.detach_storage_backend()
    assert one.controller.storage_backend is None
    assert same(one, operation.host_indices, pages)  # the transfer in flight was finished first
    p.wipe(one.host)
    one.host.free(slots)
    one.attach(options)
    done, where = one.prefetch("again", TOKENS)
    assert done == len(TOKENS) and same(one, where, pages)


def test_a_wrong_option_refuses_to_start(engine):
    with pytest.raises(ValueError, match="there is no option 'capacity'"):
        engine(options=p.extra(capacity="1GiB"))


def test_sglangs_random_failures_and_delays(engine, monkeypatch):
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.01")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.3")
    one = engine()
    assert isinstance(one.backend, HiCacheStorageFailureInjector)
    slots, pages = filled(one)
    stored = [one.store(TOKENS, slots) for _ in range(12)]
    assert set(stored) <= {0, len(TOKENS)} and len(TOKENS) in stored
    p_done = []
    for i in range(24):
        done, where = one.prefetch(f"r{i}", TOKENS)
        p_done.append(done)
        if where is not None:
            assert same(one, where[:done], pages)
            one.host.free(where)
    assert set(p_done) <= {0, len(TOKENS)} and len(TOKENS) in p_done


def test_a_damaged_page_ends_the_prefetch_before_it(engine, tmp_path):
    options = p.extra(disk=str(tmp_path / "disk"), disk_capacity="64MiB")
    one = engine(options=options)
    slots, pages = filled(one)
    assert one.store(TOKENS, slots) == len(TOKENS)
    one.close()
    needle, flipped = bytes(pages[3][:256].numpy()), 0
    for file in (file for file in (tmp_path / "disk").rglob("*") if file.is_file()):
        data = bytearray(file.read_bytes())
        at = data.find(needle)
        if at >= 0:
            data[at + 17] ^= 0x40
            flipped += 1
            file.write_bytes(data)
    assert flipped == 1
    two = engine(options=options)
    done, where = two.prefetch("r", TOKENS)
    assert done == 3 * p.PAGE and same(two, where[:done], pages)


CHILD = """
import json, sys
sys.path.insert(0, {here!r})
import conftest
import sglang_pools as p
import test_controller as t
options, what = json.loads(sys.argv[1]), sys.argv[2]
one = conftest.Engine(options=options)
if what == "store":
    slots, pages = t.filled(one, seed=5)
    print(one.store(t.TOKENS, slots), flush=True)
else:
    one.host.alloc(3 * p.PAGE)
    done, where = one.prefetch("r", t.TOKENS)
    reference = conftest.Engine(options=p.extra())
    _, pages = t.filled(reference, seed=5)
    print(done, t.same(one, where[:done], pages) if done else None, flush=True)
    reference.close()
if what == "store" and "wait" in sys.argv:
    sys.stdin.read()
one.close()
"""


def child(options, what, *more):
    code = CHILD.format(here=str(Path(__file__).parent))
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, json.dumps(options), what, *more],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_fresh_process_finds_what_another_stored_on_disk(tmp_path):
    options = p.extra(disk=str(tmp_path / "disk"), disk_capacity="64MiB")
    for what, expected in (("store", f"{len(TOKENS)}"), ("load", f"{len(TOKENS)} True")):
        process = child(options, what)
        assert process.communicate(timeout=120)[0].strip() == expected and process.returncode == 0


def test_two_processes_share_one_tier_set(tmp_path):
    options = p.extra(share=True, settings={"host.capacity": "16MiB", "share_ask": "5s"}, disk=str(tmp_path / "disk"),
                      disk_capacity="64MiB")
    owner = child(options, "store", "wait")
    assert owner.stdout.readline().strip() == f"{len(TOKENS)}"
    other = child(options, "load")
    assert other.communicate(timeout=120)[0].strip() == f"{len(TOKENS)} True" and other.returncode == 0
    owner.communicate("", timeout=120)
    assert owner.returncode == 0


def test_sglangs_file_backend_passes_the_same(engine, tmp_path, monkeypatch):
    """The harness itself: what it asks of kvbm, SGLang's own backend does."""
    monkeypatch.setenv("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", str(tmp_path / "file"))
    one = engine(storage="file", options={"unused": 1})
    slots, pages = filled(one)
    assert one.store(TOKENS, slots) == len(TOKENS)
    one.host.free(slots)
    p.wipe(one.host)
    done, where = one.prefetch("r", TOKENS)
    assert done == len(TOKENS) and same(one, where, pages)
