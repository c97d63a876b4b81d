"""The L2 adapter of LMCache's multi-process server, made by LMCache's own loader, over a real libkvbm."""
from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest

with warnings.catch_warnings():  # LMCache's dependencies have their own
    warnings.simplefilter("ignore")
    pytest.importorskip("lmcache", reason="LMCache is not installed: docs/engines/lmcache.md says how")
    pytest.importorskip("lmcache.lmcache_native", reason="LMCache's native module is not there: take its wheel")
    import torch
    from lmcache.v1.distributed.l2_adapters import create_l2_adapter
    from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
    from lmcache_memory import KV_RANK, Arena, Caller, content, empty, filled, key, layout

pytestmark = pytest.mark.filterwarnings("default")

PIECE = 64 << 10
SIZE = 150_000  # two pieces and a rest


def make(arena: Optional[Arena] = None, **params: object) -> Any:
    config = get_l2_adapter_config_class("plugin").from_dict(
        {"type": "plugin", "module_path": "libkvbm.lmcache", "class_name": "KvbmL2Adapter",
         "adapter_params": {"block_bytes": PIECE, "disk_capacity": "128MiB", "weigh": False, "revision": "1",
                            "settings": {"host.capacity": "32MiB"}} | params})
    return create_l2_adapter(config, None if arena is None else arena.desc)


@pytest.fixture
def adapter() -> Iterator[Any]:
    made = make()
    yield made
    made.close()


@pytest.fixture
def caller(adapter: Any) -> Caller:
    return Caller(adapter)


@pytest.mark.parametrize("size", [1, 4096, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, SIZE])
def test_objects_of_any_size_come_back_byte_for_byte(caller: Caller, size: int) -> None:
    keys, objects = [key(i) for i in range(3)], [filled(size, i) for i in range(3)]
    assert caller.hits(keys, layout(size)) == [False] * 3
    result = caller.store(keys, objects)
    assert result.is_successful() and result.bytes_transferred() == 3 * size
    assert caller.lookup(keys, layout(size)) == [True] * 3
    loaded = [empty(size) for _ in keys]
    assert caller.load(keys, loaded) == [True] * 3
    assert [content(o) for o in loaded] == [content(o) for o in objects]
    caller.adapter.submit_unlock(keys)


@pytest.mark.parametrize("gap", [0, 4096, PIECE, 12345])
def test_objects_in_lmcaches_own_memory_are_stored_and_loaded_in_place(gap: int) -> None:
    arena = Arena(8 << 20)
    adapter = make(arena)
    caller, step = Caller(adapter), SIZE + gap
    keys = [key(i) for i in range(10)]
    stored = [arena.filled(4096 + i * step, SIZE, i) for i in range(10)]
    assert caller.store(keys, stored).is_successful()
    loaded = [arena.at((4 << 20) + 4096 * 3 + i * step, SIZE) for i in range(10)]
    before = arena.map[:]
    assert caller.load(keys[::-1], loaded) == [True] * 10
    assert [content(o) for o in loaded] == [content(o) for o in reversed(stored)]
    after, at = arena.map[:], (4 << 20) + 4096 * 3
    for i in range(10):
        before = before[:at + i * step] + after[at + i * step:at + i * step + SIZE] + before[at + i * step + SIZE:]
    assert after == before  # nothing beside the objects was written to
    adapter.close()


def test_a_key_that_is_there_already_is_a_success_of_no_new_bytes(caller: Caller) -> None:
    assert caller.store([key(1)], [filled(SIZE, 1)]).bytes_transferred() == SIZE
    again = caller.store([key(1), key(2)], [filled(SIZE, 1), filled(SIZE, 2)])
    assert again.is_successful() and again.bytes_transferred() == SIZE


def test_another_model_rank_group_or_salt_is_a_miss(caller: Caller) -> None:
    caller.store([key(1, salt="alice")], [filled(SIZE, 1)])
    others = [key(1), key(1, salt="bob"), key(1, salt="alice", model="b/model"),
              key(1, salt="alice", rank=KV_RANK | 1 << 16), key(1, salt="alice", group=1), key(2, salt="alice")]
    layouts = layout(SIZE) | layout(SIZE, group=1)
    assert caller.hits(others, layouts) == [False] * len(others)
    assert caller.hits([key(1, salt="alice")], layouts) == [True]


def test_another_revision_is_a_miss(tmp_path: Path) -> None:
    for revision, found in (("1", [False]), ("2", [False]), ("1", [True])):
        adapter = make(disk=str(tmp_path / "kv"), revision=revision)
        caller = Caller(adapter)
        assert caller.hits([key(1)], layout(SIZE)) == found
        caller.store([key(1)], [filled(SIZE, 1)])
        adapter.close()


def test_a_model_that_nothing_tells_from_others_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    adapter = make(revision=None)
    caller = Caller(adapter)
    for _ in range(2):
        assert not caller.store([key(1)], [filled(SIZE, 1)]).is_successful()
        assert caller.hits([key(1)], layout(SIZE)) == [False]
    assert len([r for r in caplog.records if "keeps nothing of the model 'a/model'" in r.message]) == 1
    assert "option revision" in caplog.text and adapter.report_status()["is_healthy"]
    adapter.close()


def test_a_model_whose_files_are_here_is_known_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model"
    model.mkdir()
    for weights, found in ((b"1", [False]), (b"2", [False]), (b"1", [True])):
        (model / "model.bin").write_bytes(weights)
        adapter = make(disk=str(tmp_path / "kv"), revision=None)
        caller = Caller(adapter)
        assert caller.hits([key(1, model=str(model))], layout(SIZE)) == found
        assert caller.store([key(1, model=str(model))], [filled(SIZE, 1)]).is_successful()
        adapter.close()


@pytest.mark.parametrize("weak", [False, True])
def test_short_names_of_chunks_are_taken_only_where_that_is_accepted(weak: bool) -> None:
    from lmcache.v1.distributed.api import ObjectKey

    adapter = make(weak_hashes=weak)
    caller, short = Caller(adapter), ObjectKey(b"8 bytes.", "a/model", KV_RANK)
    assert caller.store([short], [filled(SIZE, 1)]).is_successful() == weak
    assert caller.hits([short], layout(SIZE)) == [weak]
    aside = adapter.report_status().get("stepped_aside", "")
    assert ("--hash-algorithm blake3" in aside and "weak_hashes" in aside) != weak
    adapter.close()


def test_fields_of_a_key_cannot_be_shifted_into_each_other(caller: Caller) -> None:
    caller.store([key(1, salt="ab", model="m")], [filled(SIZE, 1)])
    assert caller.hits([key(1, salt="b", model="ma")], layout(SIZE)) == [False]


def test_another_layout_under_the_same_key_is_a_miss_and_can_be_stored(caller: Caller) -> None:
    caller.store([key(1)], [filled(SIZE, 1, torch.bfloat16)])
    assert caller.hits([key(1)], layout(SIZE, torch.float16)) == [False]
    assert caller.hits([key(1)], layout(SIZE + 2, torch.bfloat16)) == [False]
    assert caller.load([key(1)], [empty(SIZE + 2, torch.bfloat16)]) == [False]
    longer = filled(SIZE + 2, 2, torch.bfloat16)
    assert caller.store([key(1)], [longer]).is_successful()
    loaded = empty(SIZE + 2, torch.bfloat16)
    assert caller.load([key(1)], [loaded]) == [True] and content(loaded) == content(longer)


def test_a_lookup_without_layouts_goes_by_what_was_stored(caller: Caller) -> None:
    caller.store([key(1)], [filled(SIZE, 1)])
    assert caller.hits([key(1), key(2)], {}) == [True, False]


def test_a_batch_of_hits_and_misses_has_a_result_for_each(caller: Caller) -> None:
    caller.store([key(1), key(3)], [filled(SIZE, 1), filled(SIZE, 3)])
    loaded = [empty(SIZE) for _ in range(4)]
    assert caller.load([key(i) for i in range(4)], loaded) == [False, True, False, True]
    assert content(loaded[3]) == content(filled(SIZE, 3))


def test_what_a_lookup_locked_is_not_evicted_until_it_is_unlocked() -> None:
    adapter = make(settings={"host.capacity": "2MiB"})
    caller = Caller(adapter)
    caller.store([key(1)], [filled(SIZE, 1)])
    assert caller.lookup([key(1)], layout(SIZE)) == [True]
    for i in range(10, 60):
        caller.store([key(i)], [filled(SIZE, i)])
    loaded = empty(SIZE)
    assert caller.load([key(1)], [loaded]) == [True] and content(loaded) == content(filled(SIZE, 1))
    adapter.submit_unlock([key(1)])
    adapter.submit_unlock([key(1)])  # once too often is no harm
    for i in range(60, 110):
        caller.store([key(i)], [filled(SIZE, i)])
    assert caller.hits([key(1)], layout(SIZE)) == [False]
    adapter.close()


def test_a_store_that_finds_no_room_fails_and_what_was_kept_stays_right() -> None:
    adapter = make(settings={"host.capacity": "2MiB"})
    caller = Caller(adapter)
    kept = []
    for i in range(40):  # all are locked, so none can make room
        if caller.store([key(i)], [filled(SIZE, i)]).is_successful():
            assert caller.lookup([key(i)], layout(SIZE)) == [True]
            kept.append(i)
    assert 0 < len(kept) < 40
    loaded = [empty(SIZE) for _ in kept]
    assert caller.load([key(i) for i in kept], loaded) == [True] * len(kept)
    assert [content(o) for o in loaded] == [content(filled(SIZE, i)) for i in kept]
    assert adapter.report_status()["is_healthy"]
    adapter.close()


def test_deleted_objects_are_gone_and_lmcache_is_told(caller: Caller) -> None:
    told: list[Any] = []

    class Listener:
        def on_l2_keys_stored(self, keys: Any, sizes: Any) -> None:
            told.append(("stored", len(keys), sum(sizes)))

        def on_l2_keys_accessed(self, keys: Any) -> None:
            told.append(("accessed", len(keys)))

        def on_l2_keys_deleted(self, keys: Any) -> None:
            told.append(("deleted", len(keys)))

    caller.adapter.register_listener(Listener())
    keys = [key(1, salt="u"), key(2, salt="u")]
    caller.store(keys, [filled(SIZE, 1), filled(SIZE, 2)])
    assert caller.adapter.get_usage().bytes_by_cache_salt == {"u": 2 * SIZE}
    caller.load(keys[1:], [empty(SIZE)])
    caller.adapter.delete([keys[0], key(9)])
    assert caller.hits(keys, layout(SIZE)) == [False, True]
    assert told == [("stored", 2, 2 * SIZE), ("accessed", 1), ("deleted", 1)]
    usage = caller.adapter.get_usage()
    assert usage.bytes_by_cache_salt == {"u": SIZE} and 0 < usage.usage_fraction < 1


def test_replicated_kv_is_written_by_rank_zero_and_read_by_all() -> None:
    adapter = make(replicated=True)
    caller = Caller(adapter)
    ranks = [key(1, rank=2 << 24 | r << 16 | 2 << 8 | r) for r in range(2)]
    assert caller.store([ranks[1]], [filled(SIZE, 1)]).bytes_transferred() == 0
    assert caller.hits(ranks, layout(SIZE)) == [False, False]
    caller.store([ranks[0]], [filled(SIZE, 1)])
    assert caller.hits(ranks, layout(SIZE)) == [True, True]
    adapter.close()


def test_many_threads_store_and_load_at_once(adapter: Any) -> None:
    """Three descriptors and one set of results for all callers: each takes what is there and keeps what is others'."""
    faults: list[str] = []
    stored: dict[int, Any] = {}
    came = threading.Condition()

    def collect() -> None:
        poller = select.poll()
        poller.register(adapter.get_store_event_fd(), select.POLLIN)
        while len(stored) < 80 and poller.poll(30_000):
            os.eventfd_read(adapter.get_store_event_fd())
            with came:
                stored.update(adapter.pop_completed_store_tasks())
                came.notify_all()

    def work(t: int) -> None:
        for i in range(20):
            keys = [key(1000 * t + i), key(7_000_000 + i)]  # its own, and one that all threads store
            objects = [filled(SIZE, 1000 * t + i), filled(SIZE, 7_000_000 + i)]
            task = adapter.submit_store_task(keys, objects)
            with came:
                if not came.wait_for(lambda: task in stored, 30):
                    faults.append(f"thread {t}: store {i} never ended")
                    return
            loaded = [empty(SIZE), empty(SIZE)]
            task = adapter.submit_load_task(keys, loaded)
            end = time.monotonic() + 30
            while (bitmap := adapter.query_load_result(task)) is None and time.monotonic() < end:
                time.sleep(0.001)
            for n in range(2):
                if bitmap is None or not bitmap.test(n):
                    faults.append(f"thread {t}, object {i}, {n}: not loaded")
                elif content(loaded[n]) != content(objects[n]):
                    faults.append(f"thread {t}, object {i}, {n}: other bytes")

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)] + [threading.Thread(target=collect)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_an_object_that_another_thread_stores_meanwhile_is_not_dropped(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, objects, dropped = Caller(adapter), adapter._objects, []
    assert caller.store([key(1)], [filled(SIZE, 1)]).is_successful()
    look, calls = objects._lookup, []

    def before_it_landed(names: Any, sizes: Any, no_use: bool) -> Any:
        calls.append(sizes)
        found = look(names, sizes, no_use)
        return found._replace(sizes=[0] * len(names)) if len(calls) == 1 else found

    monkeypatch.setattr(objects, "_lookup", before_it_landed)
    monkeypatch.setattr(objects, "_drop", lambda *name: dropped.append(name))
    assert caller.store([key(1)], [filled(SIZE, 1)]).is_successful()
    assert len(calls) == 2 and dropped == []


def test_closing_while_work_is_in_flight_ends_in_order() -> None:
    adapter = make(settings={"host.capacity": "64MiB"})
    objects = [filled(SIZE, i) for i in range(100)]
    for i in range(100):
        adapter.submit_store_task([key(i)], [objects[i]])
        adapter.submit_load_task([key(i)], [empty(SIZE)])
    adapter.submit_lookup_and_lock_task([key(i) for i in range(100)], layout(SIZE))
    adapter.close()
    adapter.close()


def test_calls_after_the_end_find_nothing() -> None:
    adapter = make()
    adapter.close()
    adapter.submit_store_task([key(1)], [filled(SIZE, 1)])
    adapter.submit_load_task([key(1)], [empty(SIZE)])
    adapter.submit_lookup_and_lock_task([key(1)], layout(SIZE))
    adapter.delete([key(1)])
    adapter.submit_unlock([key(1)])


def test_a_library_that_fails_steps_aside_and_lmcache_goes_on(adapter: Any, caplog: pytest.LogCaptureFixture) -> None:
    caller = Caller(adapter)
    caller.store([key(1)], [filled(SIZE, 1)])
    adapter._objects.aside.step("the host tier has gone")
    assert not caller.store([key(2)], [filled(SIZE, 2)]).is_successful()
    assert caller.hits([key(1)], layout(SIZE)) == [False]
    assert caller.load([key(1)], [empty(SIZE)]) == [False]
    status = adapter.report_status()
    assert not status["is_healthy"] and status["stepped_aside"] == "the host tier has gone"
    assert [r.message for r in caplog.records if "steps aside" in r.message] == [
        "libkvbm under LMCache steps aside, and the engine goes on without it: the host tier has gone"]


RELOAD = """
import sys
sys.path.insert(0, sys.argv[2])
from lmcache_memory import *
from test_lmcache_adapter import make, SIZE
adapter = make(disk=sys.argv[1])
caller, keys = Caller(adapter), [key(i) for i in range(8)]
found = caller.hits(keys, layout(SIZE))
loaded = [empty(SIZE) for _ in keys]
good = caller.load(keys, loaded)
assert all(content(o) == content(filled(SIZE, i)) for i, o in enumerate(loaded) if good[i]), "wrong bytes"
print(sum(found), sum(good))
adapter.close()
"""


def reload(disk: Path) -> list[int]:
    """Hits and loads of eight objects in a fresh process, which also compares every byte."""
    here = Path(__file__).parent
    run = subprocess.run([sys.executable, "-c", RELOAD, str(disk), str(here)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [int(word) for word in run.stdout.split()[-2:]]


def test_a_fresh_process_finds_what_lies_on_the_disk(tmp_path: Path) -> None:
    adapter = make(disk=str(tmp_path / "kv"))
    Caller(adapter).store([key(i) for i in range(8)], [filled(SIZE, i) for i in range(8)])
    adapter.close()
    assert reload(tmp_path / "kv") == [8, 8]


def test_a_flipped_byte_on_the_disk_is_a_miss_of_that_object(tmp_path: Path) -> None:
    adapter = make(disk=str(tmp_path / "kv"))
    Caller(adapter).store([key(i) for i in range(8)], [filled(SIZE, i) for i in range(8)])
    adapter.close()
    needle, flipped = content(filled(SIZE, 5))[PIECE + 1000:PIECE + 1064], 0
    for file in sorted(p for p in (tmp_path / "kv").rglob("*") if p.is_file()):
        data = bytearray(file.read_bytes())
        at = data.find(needle)
        if at >= 0:
            data[at + 7] ^= 0x20
            file.write_bytes(data)
            flipped += 1
    assert flipped == 1
    found, good = reload(tmp_path / "kv")
    assert found in (7, 8) and good == 7


@pytest.mark.parametrize("params, says", [
    ({"blocks": 1}, "there is no option 'blocks'"),
    ({"block_bytes": "1 pebble"}, "block_bytes is '1 pebble'"),
    ({"block_bytes": 100}, "4KiB to 1GiB"),
    ({"replicated": "yes"}, "replicated is 'yes': true or false"),
    ({"ask_nodes_ms": -1}, "ask_nodes_ms is -1"),
    ({"settings": {"host.capacity": "16KiB"}}, "libkvbm could not be started"),
    ({"settings": {"no.such": 1}}, "libkvbm could not be started"),
    ({"disk": "/proc/nowhere"}, "libkvbm could not be started"),
])
def test_a_configuration_that_cannot_be_meant_refuses_the_start(params: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(**params)


def test_an_lmcache_with_another_interface_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface

    monkeypatch.setattr(L2AdapterInterface, "submit_load_task", lambda self, batch: None)
    with pytest.raises(ValueError, match=r"has no L2AdapterInterface.submit_load_task\(keys, objects\)"):
        make()


@pytest.mark.parametrize("quick, loaded", [(True, False), (False, True)])
def test_what_is_quicker_to_compute_is_not_loaded(tmp_path: Path, quick: bool, loaded: bool) -> None:
    keys = [key(i) for i in range(6)]
    first = make(disk=str(tmp_path / "disk"))
    assert Caller(first).store(keys, [filled(SIZE, i) for i in range(6)]).is_successful()
    first.close()
    adapter = make(disk=str(tmp_path / "disk"), weigh=True)
    caller, speed, now = Caller(adapter), adapter._objects.speed, [0]
    speed._now = lambda: now[0]
    each = 1 if quick else 10**6  # nanoseconds a byte
    for i in range(4):
        assert caller.hits([key(100 + 2 * i), key(101 + 2 * i)], layout(SIZE)) == [False] * 2
        now[0] += 2 * SIZE * each if not quick else 1000
        caller.store([key(100 + 2 * i), key(101 + 2 * i)], [filled(SIZE, 7), filled(SIZE, 8)])
    assert quick or speed.block_ns(1) == each
    assert caller.lookup(keys, layout(SIZE)) == [True] * 6
    objects = [empty(SIZE) for _ in keys]
    assert caller.load(keys, objects) == [loaded] * 6
    told, shown = adapter._objects.stats(), adapter.report_status()["weighed"]
    assert shown["left_blocks"] == told.blocks_left and shown["actual_s"] == told.load_actual_ns / 1e9
    if loaded:
        assert [content(o) for o in objects] == [content(filled(SIZE, i)) for i in range(6)]
        assert told.load_predicted_ns > 0 and told.load_actual_ns > 0 and told.blocks_left == 0
    else:
        assert told.loads_not_started > 0 and told.blocks_left == 18
    caller.adapter.submit_unlock(keys)
    adapter.close()


def test_a_disk_that_does_not_answer_in_time_holds_no_load(tmp_path: Path) -> None:
    keys = [key(i) for i in range(4)]
    size = 4 << 20
    disk = tmp_path / "disk"
    slow = tmp_path / "slow.toml"
    slow.write_text(f'[[tier]]\npath = "{disk}"\ncapacity = "128MiB"\nread_bytes_per_s = "4KiB"\n')
    first = make(disk=str(disk))
    assert Caller(first).store(keys, [filled(size, i) for i in range(4)]).is_successful()
    first.close()
    adapter = make(config_file=str(slow), timeout_ms=300)
    caller = Caller(adapter)
    assert caller.lookup(keys, layout(size)) == [True] * 4
    assert not all(caller.load(keys, [empty(size) for _ in keys]))  # at this speed it would take an hour
    caller.adapter.submit_unlock(keys)
    adapter.close()


@pytest.mark.parametrize("given", [{"timeout_ms": -1}, {"timeout_ms": "5s"}, {"weigh": "no"}])
def test_options_that_cannot_be_meant_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(Exception, match=f"{next(iter(given))} is "):
        make(**given)
