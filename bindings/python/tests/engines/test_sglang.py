"""The storage backend of SGLang: hits by identity, refusals, and failures."""
from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import sglang_pools as p
from sglang_pools import torch

from sglang.srt.mem_cache.hicache_storage import (HiCacheStorageExtraInfo, PoolHitPolicy, PoolName, PoolTransfer,
                                                  PoolTransferResult)
from sglang.srt import runtime_context

import libkvbm
from libkvbm.engine import ConfigurationError, MissedSpeed
from libkvbm.sglang import KvbmStorage, hybrid, interface
from libkvbm.sglang.names import digests
from libkvbm.sglang.options import Options


@pytest.fixture
def disk(tmp_path):
    """Options of a tier that outlives a backend."""
    return lambda **more: p.extra(disk=str(tmp_path / "disk"), disk_capacity="64MiB", block_bytes="64KiB", **more)


def stored(pool, options, n=4, **facts):
    """Stores n pages and closes; returns their keys and bytes."""
    keys = p.page_keys(n)
    store = p.backend(pool, options=options, **facts)
    p.scramble(pool)
    assert store.batch_set_v1(keys, p.slots(pool, *range(n))) == [True] * n
    store.close()
    return keys, p.snapshot(pool)


# ---- what is quicker to compute

def speed(block_ns):
    """Of an engine that computes a page in this time."""
    made = MissedSpeed(now=lambda: clock[0])
    clock = [0]
    for i in range(4):
        made.missed([(i, 0), (i, 1)])
        clock[0] += 2 * block_ns
        made.stored([((i, 0), 1), ((i, 1), 1)])
    return made


@pytest.mark.parametrize("quick, weigh, loaded", [(True, True, False), (False, True, True), (True, False, True)])
def test_what_is_quicker_to_compute_is_answered_as_a_miss(disk, quick, weigh, loaded):
    pool = p.mha("page_first")
    keys, _ = stored(pool, disk())
    p.wipe(pool)
    store = p.backend(pool, options=disk(weigh=weigh))
    store._speed = speed(1 if quick else 10**10)
    assert store.batch_exists(keys) == 4
    assert store.batch_get_v1(keys, p.slots(pool, 0, 1, 2, 3)) == [loaded] * 4
    told = store._manager.stats()
    if weigh:
        assert (told.loads_not_started, told.blocks_left) == ((0, 0) if loaded else (1, 4))
        assert (told.load_predicted_ns > 0) == (told.load_actual_ns > 0) == loaded
    # Blocks left are computed and stored, so the engine's speed stays known.
    assert (keys[0] in store._speed._waiting) == (not loaded)
    store.close()


def test_pages_between_a_miss_and_their_store_say_how_quickly_the_engine_computes(disk):
    pool = p.mha("page_first")
    p.scramble(pool)
    store = p.backend(pool, options=disk(weigh=True))
    assert store._speed.block_ns(1) == 0
    for i in range(4):
        keys = p.page_keys(3, f"prompt {i}")
        assert store.batch_exists(keys) == 0
        assert store.batch_set_v1(keys, p.slots(pool, 0, 1, 2)) == [True] * 3
    assert store._speed.block_ns(1) > 0
    store.close()


# ---- hits by identity


def test_a_new_backend_finds_what_the_disk_has(disk):
    pool = p.mha("page_first")
    keys, before = stored(pool, disk())
    p.wipe(pool)
    store = p.backend(pool, options=disk())
    assert store.batch_exists(keys + p.page_keys(1, "unknown")) == 4
    assert store.batch_get_v1(keys, p.slots(pool, 0, 1, 2, 3)) == [True] * 4
    for page in range(4):
        assert torch.equal(pool.get_data_page(page * p.PAGE).view(torch.uint8),
                           before[0][:, page * p.PAGE:(page + 1) * p.PAGE].flatten())
    store.close()


def test_a_new_backend_finds_what_a_store_has(tmp_path):
    options = p.extra(stores=[f"file://{tmp_path}/kv?poll=20ms&publish=10ms"], block_bytes="64KiB")
    pool = p.mha("page_first")
    keys, before = stored(pool, dict(options))
    p.wipe(pool)
    store = p.backend(pool, options=dict(options))
    end = time.monotonic() + 60
    while store.batch_exists(keys) < 4 and time.monotonic() < end:  # until it has read what is there
        time.sleep(0.01)
    assert store.batch_get_v1(keys, p.slots(pool, 0, 1, 2, 3)) == [True] * 4
    assert torch.equal(pool.get_data_page(0).view(torch.uint8), before[0][:, :p.PAGE].flatten())
    store.close()


@pytest.mark.parametrize("change", [
    {"tp_rank": 1, "tp_size": 2}, {"tp_size": 2}, {"pp_rank": 1, "pp_size": 2}, {"attn_cp_rank": 1, "attn_cp_size": 2},
    {"model_name": "other"}, {"options": {"revision": "2"}}, {"options": {"tenant": "t"}},
    {"pool": lambda: p.mha("page_first_direct")}, {"pool": lambda: p.mha("layer_first")},
    {"pool": lambda: p.mha("page_head")}, {"pool": lambda: p.mha("page_unified")},
    {"pool": lambda: p.mha("page_first", dtype=torch.float16)}, {"pool": lambda: p.mha("page_first", heads=2, dim=64)},
    {"pool": lambda: p.mla("page_first"), "is_mla_model": True}], ids=str)
def test_another_rank_model_or_layout_is_a_miss(disk, change):
    pool = p.mha("page_first")
    keys, _ = stored(pool, disk())
    change = dict(change)
    other = change.pop("pool", lambda: p.mha("page_first"))()
    store = p.backend(other, options=disk(**change.pop("options", {})), **change)
    before = p.snapshot(other)
    assert store.batch_exists(keys) == 0
    assert store.batch_get_v1(keys, p.slots(other, 0, 1, 2, 3)) == [False] * 4
    assert p.restored(other, before)
    store.close()


@pytest.mark.parametrize("change", ["weights", "configuration", "override", "adapter", "scales"])
def test_another_model_under_the_same_path_is_a_miss(disk, monkeypatch, tmp_path, change):
    from sglang.srt.lora.lora_registry import LoRARef

    folder, adapter = tmp_path / "model", tmp_path / "adapter"
    arguments = SimpleNamespace(model_path=str(folder), json_model_override_args="{}",
                                quantization_param_path=str(tmp_path / "scales.json"),
                                lora_paths=[LoRARef(lora_name="tuned", lora_path=str(adapter))])
    monkeypatch.setattr(runtime_context, "get_server_args", lambda: arguments)

    def write(what=""):
        for place, config in ((folder, "config.json"), (adapter, "adapter_config.json")):
            place.mkdir(exist_ok=True)
            (place / config).write_text("{}")
            (place / "model.safetensors").write_bytes(b"1" * 1000)
        (tmp_path / "scales.json").write_text('{"0": 0.5}' if what == "scales" else '{"0": 1}')
        arguments.json_model_override_args = '{"rope_theta": 1e6}' if what == "override" else "{}"
        if what == "weights":
            (folder / "model.safetensors").write_bytes(b"2" * 1000)
        elif what == "configuration":
            (folder / "config.json").write_text('{"rope_theta": 1e6}')
        elif what == "adapter":
            (adapter / "model.safetensors").write_bytes(b"2" * 1000)

    pool = p.mha("page_first")
    write()
    keys, _ = stored(pool, disk())
    for what, found in ((change, 0), ("", len(keys))):
        write(what)
        store = p.backend(pool, options=disk())
        assert store.batch_exists(keys) == found
        store.close()


def test_ranks_with_the_same_latents_share_them_and_one_writes(disk):
    pool = p.mla("page_first")
    keys, before = stored(pool, disk(), is_mla_model=True, tp_rank=0, tp_size=4)
    p.wipe(pool)
    store = p.backend(pool, options=disk(), is_mla_model=True, tp_rank=3, tp_size=4)
    assert store.batch_get_v1(keys, p.slots(pool, 0, 1, 2, 3)) == [True] * 4
    assert torch.equal(p.snapshot(pool)[0][:4 * p.PAGE], before[0][:4 * p.PAGE])
    more = p.page_keys(2, "more")
    assert store.batch_set_v1(more, p.slots(pool, 5, 6)) == [True, True]
    assert store.batch_exists(more) == 0
    store.close()


@pytest.mark.parametrize("name", ["mamba", "draft"])
def test_what_is_cut_by_rank_is_never_shared_even_beside_latents(disk, name):
    side = p.mamba() if name == "mamba" else p.mha("page_first")
    keys = p.page_keys(2)
    pages = p.slots(side, 0, 1)
    for rank, found in ((0, True), (1, False)):
        store = p.backend(p.mla("page_first"), options=disk(), is_mla_model=True, tp_rank=rank, tp_size=2,
                          others={name: side})
        got = store.batch_get_v2([PoolTransfer(name=PoolName(name), host_indices=pages, keys=keys)])
        assert got == {name: [rank == 0 and False] * 2}
        if rank == 0:
            p.scramble(side)
            assert store.batch_set_v2([PoolTransfer(name=PoolName(name), host_indices=pages, keys=keys)]) == \
                {name: [True, True]}
        got = store.batch_get_v2([PoolTransfer(name=PoolName(name), host_indices=pages, keys=keys)])
        assert got == {name: [found] * 2}
        store.close()


def test_keys_with_more_than_a_hash_are_their_own():
    plain = p.page_keys(2)
    unified = [f"{plain[0]}_ukv1-0123456789abcdef_L0-32_H{head}" for head in range(2)]
    spaced = plain[0][:-2] + "  "
    found = digests(plain + unified + [spaced, plain[0].upper()])
    rows = [found[i:i + 32] for i in range(0, len(found), 32)]
    assert len(rows) == 6 and rows[0] == bytes.fromhex(plain[0]) == rows[5] and len(set(rows)) == 5
    assert digests(plain) == found[:64]
    pool = p.mha("page_first")
    store = p.backend(pool)
    assert store.batch_set_v1(unified, p.slots(pool, 0, 1)) == [True, True]
    assert store.batch_exists(unified) == 2 and store.batch_exists(plain) == 0
    store.close()


# ---- single pages, and the calls' contracts


def test_a_key_that_is_there_is_set_again_with_success_and_keeps_its_bytes():
    pool = p.mha("page_first")
    store = p.backend(pool)
    keys = p.page_keys(3)
    p.scramble(pool)
    page = pool.get_data_page(0).clone()
    assert store.batch_set_v1(keys[:2], p.slots(pool, 0, 1)) == [True, True]
    p.scramble(pool, seed=1)
    assert store.batch_set_v1(keys, p.slots(pool, 0, 1, 2)) == [True] * 3
    assert torch.equal(store.get(keys[0]).view(torch.uint8), page.view(torch.uint8))
    store.close()


def test_a_prefix_ends_at_the_first_page_that_is_not_there():
    pool = p.mha("page_first")
    store = p.backend(pool)
    keys = p.page_keys(5)
    store.batch_set_v1(keys[:2] + keys[3:], p.slots(pool, 0, 1, 3, 4),
                       HiCacheStorageExtraInfo(prefix_keys=p.page_keys(3, "before")))
    assert store.batch_exists(keys) == 2 and store.batch_exists(keys[3:]) == 2 and store.batch_exists([]) == 0
    assert store.batch_get_v1(keys, p.slots(pool, 0, 1, 2, 3, 4)) == [True, True, False, True, True]
    assert [store.exists(key) for key in keys] == [True, True, False, True, True]
    assert [page is not None for page in store.batch_get(keys)] == [True, True, False, False, False]
    store.close()


def test_flat_pages_go_in_and_out_without_the_zero_copy_interface():
    pool = p.mha("layer_first")
    store = p.backend(pool, options=p.extra(interface_v1=0))
    keys = p.page_keys(3)
    p.scramble(pool)
    values = [pool.get_data_page(page * p.PAGE) for page in range(3)]
    assert store.batch_set(keys, values) and store.set(keys[0], values[1])
    assert store.batch_exists(keys) == 3
    targets = [pool.get_dummy_flat_data_page() for _ in keys]
    got = store.batch_get(keys, targets)
    assert all(one is target for one, target in zip(got, targets))
    assert all(torch.equal(one.view(torch.uint8), value.contiguous().view(torch.uint8))
               for one, value in zip(got, values))
    assert store.get(p.page_keys(1, "unknown")[0], targets[0]) is None
    assert store.get(keys[0], targets[0][:-1]) is None and not store.set(p.page_keys(1, "short")[0], values[0][:-1])
    assert store.get(keys[0], 4711) is None and not store.set(p.page_keys(1, "x")[0]) and not store.batch_set(keys)
    store.close()


def test_clear_forgets_this_ranks_pages():
    pool = p.mha("page_first")
    store = p.backend(pool)
    keys = p.page_keys(2)
    store.batch_set_v1(keys, p.slots(pool, 0, 1))
    assert store.clear() and store.batch_exists(keys) == 0
    assert store.batch_set_v1(keys, p.slots(pool, 0, 1)) == [True, True]
    store.close()


def test_stats_are_sglangs_with_the_librarys_beside_them():
    pool = p.mha("page_first")
    store = p.backend(pool, enable_storage_metrics=True)
    keys = p.page_keys(2)
    store.batch_set_v1(keys, p.slots(pool, 0, 1))
    store.batch_get_v1(keys, p.slots(pool, 0, 1))
    stats = store.get_stats()
    assert stats.backup_pgs == [2] and stats.prefetch_pgs == [2] and stats.prefetch_bandwidth[0] > 0
    assert stats.kvbm.tiers[0].stores == 2 and store.get_stats().prefetch_pgs == []
    assert "kvbm_" in store.metrics()
    store.close()
    assert store.get_stats().kvbm is None and store.metrics() == ""


# ---- damage and failures


def flip_a_byte_of_every_record(directory, page):
    """In the files of the disk tier, wherever the page's bytes lie; returns how often."""
    found = 0
    for file in Path(directory).rglob("*"):
        if not file.is_file():
            continue
        data = bytearray(file.read_bytes())
        at = data.find(page)
        while at >= 0:
            data[at] ^= 1
            found += 1
            at = data.find(page, at + 1)
        file.write_bytes(data)
    return found


def test_a_flipped_byte_on_disk_is_that_pages_failure_alone(disk, tmp_path):
    pool = p.mha("page_first")
    keys, _ = stored(pool, disk())
    piece = bytes(pool.kv_buffer[0, p.PAGE:2 * p.PAGE].contiguous().view(torch.uint8).flatten().numpy()[:512])
    good = [pool.get_data_page(page * p.PAGE).clone() for page in range(4)]
    assert flip_a_byte_of_every_record(tmp_path / "disk", piece) == 1
    p.wipe(pool)
    store = p.backend(pool, options=disk())
    got = store.batch_get_v1(keys, p.slots(pool, 0, 1, 2, 3))
    assert got == [True, False, True, True]
    for page in (0, 2, 3):
        assert torch.equal(pool.get_data_page(page * p.PAGE).view(torch.uint8), good[page].view(torch.uint8))
    assert store.get(keys[1]) is None
    assert store.batch_exists(keys) == 1  # known to be gone
    pool.set_from_flat_data_page(p.PAGE, good[1])
    assert store.batch_set_v1(keys[1:2], p.slots(pool, 1)) == [True] and store.batch_exists(keys) == 4
    store.close()


def test_a_page_in_the_place_of_another_is_not_taken_for_it(disk, tmp_path):
    pool = p.mha("page_first")
    keys, _ = stored(pool, disk())
    flat = [bytes(pool.kv_buffer[:, page * p.PAGE:(page + 1) * p.PAGE].contiguous().view(torch.uint8).flatten().numpy())
            for page in range(4)]
    swapped = 0
    for file in (file for file in (tmp_path / "disk").rglob("*") if file.is_file()):
        data = file.read_bytes()
        one, two = data.find(flat[0]), data.find(flat[1])
        if one >= 0 and two >= 0:
            changed = bytearray(data)
            changed[one:one + len(flat[0])], changed[two:two + len(flat[1])] = flat[1], flat[0]
            file.write_bytes(changed)
            swapped += 1
    assert swapped == 1
    store = p.backend(pool, options=disk())
    assert store.batch_get_v1(keys, p.slots(pool, 0, 1, 2, 3)) == [False, False, True, True]
    store.close()


def test_a_library_that_fails_steps_aside_once_and_everything_is_a_miss(caplog, monkeypatch):
    pool = p.mha("page_first")
    store = p.backend(pool)
    keys = p.page_keys(2)
    assert store.batch_set_v1(keys, p.slots(pool, 0, 1)) == [True, True]

    def broken(*_):
        raise libkvbm.errors.error_of(-600, "the library is broken")

    monkeypatch.setattr(store._stores["kv"], "hits", broken)
    with caplog.at_level(logging.ERROR):
        assert store.batch_exists(keys) == 0
        assert store.batch_exists(keys) == 0
    # The library's own lines come by another thread, and perhaps from the test before.
    assert [record.name for record in caplog.records].count("libkvbm.sglang") == 1
    assert "the library is broken" in caplog.text and "goes on without it" in caplog.text
    assert store.batch_get_v1(keys, p.slots(pool, 0, 1)) == [False, False]
    assert store.batch_set_v1(keys, p.slots(pool, 0, 1)) == [False, False]
    assert store.batch_exists_v2(keys).kv_hit_pages == 0 and store.get(keys[0]) is None and not store.clear()
    store.close()


def test_closing_waits_for_calls_under_way_and_ends_the_use():
    pool = p.mha("page_first")
    store = p.backend(pool)
    keys, inside, go, order = p.page_keys(1), threading.Event(), threading.Event(), []
    load = store._stores["kv"].load

    def slow(*arguments):
        inside.set()
        go.wait(30)
        order.append("loaded")
        return load(*arguments)

    store._stores["kv"].load = slow
    store.batch_set_v1(keys, p.slots(pool, 0))
    got = []
    reader = threading.Thread(target=lambda: got.append(store.batch_get_v1(keys, p.slots(pool, 0))))
    closer = threading.Thread(target=lambda: (store.close(), order.append("closed")))
    reader.start()
    assert inside.wait(30)
    closer.start()
    go.set()
    reader.join(30)
    closer.join(30)
    assert order == ["loaded", "closed"] and got == [[True]]
    assert store.batch_get_v1(keys, p.slots(pool, 0)) == [False] and store.batch_exists(keys) == 0
    store.close()


# ---- several pools


def test_a_prefix_of_a_hybrid_model_is_what_all_pools_can_restore():
    anchor, index = p.dsa("page_first")
    state = p.mamba()
    store = p.backend(anchor, is_mla_model=True, others={"kv": anchor, "indexer": index, "mamba": state})
    keys = p.page_keys(6)
    p.scramble(anchor)
    p.scramble(index)
    p.scramble(state)
    before = p.snapshot(index), p.snapshot(state)
    assert store.batch_set_v1(keys[:5], p.slots(anchor, 0, 1, 2, 3, 4)) == [True] * 5
    side = PoolTransfer(name=PoolName.INDEXER, keys=keys[:4], host_indices=p.slots(index, 0, 1, 2, 3))
    last = PoolTransfer(name=PoolName.MAMBA, keys=[keys[1], keys[3]], host_indices=p.slots(state, 0, 1),
                        hit_policy=PoolHitPolicy.TRAILING_PAGES)
    assert store.batch_set_v2([side, last]) == {"indexer": [True] * 4, "mamba": [True, True]}
    one = PoolTransfer(name=PoolName.MAMBA, keys=[keys[5]], hit_policy=PoolHitPolicy.TRAILING_PAGES)
    result = store.batch_exists_v2(keys, [PoolTransfer(name=PoolName.INDEXER), one])
    assert result == PoolTransferResult(4, {"kv": 5, "indexer": 4, "mamba": 4}, [2, 4])
    p.wipe(index)
    p.wipe(state)
    assert store.batch_get_v2([side, last]) == {"indexer": [True] * 4, "mamba": [True, True]}
    assert torch.equal(p.snapshot(index)[0][:4], before[0][0][:4])
    assert all(torch.equal(now[:2], was[:2]) for now, was in zip(p.snapshot(state), before[1]))
    assert store.batch_get_v2([PoolTransfer(name=PoolName.SWA, keys=keys[:1], host_indices=p.slots(state, 0))]) == \
        {"swa": [False]}
    store.close()


def test_a_pool_that_is_registered_later_is_served_too():
    pool, late = p.mha("page_first"), p.mamba()
    store = p.backend(pool)
    store.register_mem_host_pool_v2(late, PoolName.MAMBA)
    transfer = PoolTransfer(name=PoolName.MAMBA, keys=p.page_keys(2), host_indices=p.slots(late, 0, 1))
    p.scramble(late)
    assert store.batch_set_v2([transfer]) == {"mamba": [True, True]}
    assert store.batch_get_v2([transfer]) == {"mamba": [True, True]}
    store.close()


def test_an_anchor_without_bytes_claims_nothing_by_itself():
    from sglang.srt.mem_cache.memory_pool_host import LogicalHostPool

    anchor, side = LogicalHostPool(p.PAGE * 8, p.PAGE, "page_first"), p.mha("page_first")
    store = p.backend(anchor, others={"kv": anchor, "deepseek_v4_c4": side})
    keys = p.page_keys(3)
    transfer = PoolTransfer(name=PoolName.DEEPSEEK_V4_C4, keys=keys[:2], host_indices=p.slots(side, 0, 1))
    assert store.batch_exists(keys) == 0 and store.batch_exists_v2(keys).kv_hit_pages == 0
    assert store.batch_set_v2([transfer]) == {"deepseek_v4_c4": [True, True]}
    assert store.batch_set_v1(keys, p.slots(side, 0, 1, 2)) == [True] * 3  # no bytes to store
    assert store.batch_get_v1(keys, p.slots(side, 0, 1, 2)) == [True] * 3
    assert store.batch_exists_v2(keys, [transfer]).kv_hit_pages == 2
    store.close()


@pytest.mark.parametrize("window, there, usable", [
    (1, "1011", [1, 3, 4]), (2, "1011", [1, 4]), (2, "0111", [3, 4]), (3, "1111", [1, 2, 3, 4]), (9, "1101", [1, 2])])
def test_a_window_must_be_whole_at_the_end_of_a_prefix(window, there, usable):
    keys = [str(i) for i in range(4)]
    transfer = PoolTransfer(name=PoolName.SWA, keys=keys[:window] + ["x"] * (window - 4),
                            hit_policy=PoolHitPolicy.TRAILING_PAGES)
    result = hybrid.fold(keys, 4, [transfer], lambda name, asked: [there[int(key)] == "1" for key in asked])
    assert result.restorable_prefix_pages == usable and result.kv_hit_pages == usable[-1]
    assert result.extra_pool_hit_pages == {"kv": 4, "swa": usable[-1]}


@pytest.mark.parametrize("there, covered", [("11111111", 8), ("00110011", 8), ("00110001", 4), ("00100011", 0)])
def test_block_groups_say_what_they_cover_and_take_nothing_away(there, covered):
    keys = [str(i) for i in range(8)]
    transfer = PoolTransfer(name=PoolName.DEEPSEEK_V4_C4, hit_policy=PoolHitPolicy.BLOCK_GROUPS, block_pages=4,
                            group_pages=2)
    result = hybrid.fold(keys, 8, [transfer], lambda name, asked: [there[int(key)] == "1" for key in asked])
    assert result.kv_hit_pages == 8
    assert result.extra_pool_hit_pages == ({"kv": 8, "deepseek_v4_c4": covered} if covered else {"kv": 8})


def test_a_hit_policy_that_is_not_known_is_an_error():
    transfer = PoolTransfer(name=PoolName.SWA, hit_policy="some_pages")
    with pytest.raises(ValueError, match="some_pages"):
        hybrid.fold(["0"], 1, [transfer], lambda name, asked: [True])


# ---- what is refused at start


@pytest.mark.parametrize("options, words", [
    ({"cache": 1}, "there is no option 'cache'"), ({"settings": {"host.capcity": "1GiB"}}, "host.capcity"),
    ({"timeout_ms": "soon"}, "timeout_ms"), ({"timeout_ms": True}, "timeout_ms"),
    ({"block_bytes": "much"}, "block_bytes"),
    ({"revision": 3}, "revision"), ({"disk": "/proc/none"}, "could not be started"), ({"share": 1}, "share"),
    ({"stores": "/mnt/kv"}, "stores: the first is no URL"), ({"stores": "nowhere://x"}, "could not be started"),
    ({"settings": {"host.capacity": "1KiB"}}, "could not be started")], ids=str)
def test_wrong_configuration_is_refused_with_a_sentence(options, words):
    with pytest.raises(ConfigurationError, match=words):
        p.backend(p.mha("page_first"), options=p.extra(**options))


def test_ranks_share_one_directory_unless_told_otherwise(disk):
    assert Options.of(disk(), 2).library.share and not Options.of(disk(), 1).library.share
    assert not Options.of(disk(share=False), 2).library.share and not Options.of(p.extra(), 2).library.share


def test_a_model_that_nothing_tells_from_others_is_refused():
    for name in (None, "model"):
        options = {key: value for key, value in p.extra().items() if key != "revision"}
        with pytest.raises(ConfigurationError, match="not on this machine.*option revision"):
            KvbmStorage(p.config(model_name=name, options=options), {})


def test_decode_context_parallelism_is_refused():
    with pytest.raises(ConfigurationError, match="decode context"):
        KvbmStorage(p.config(is_mla_model=True, tp_size=2, dcp_size=2, logical_page_size=32), {})


def test_a_pool_that_gives_no_pages_is_refused():
    class Closed:
        layout, size, page_size, kv_buffer = "page_first", 64, 16, torch.zeros(4)

        def get_page_buffer_meta(self, indices):
            raise NotImplementedError("no pages")

        get_dummy_flat_data_page = get_data_page = get_page_buffer_meta

    with pytest.raises(ConfigurationError, match="choose another --hicache-mem-layout"):
        p.backend(Closed())


@pytest.mark.parametrize("change, words", [
    (lambda m: m.delattr("PoolTransfer"), "no PoolTransfer"),
    (lambda m: m.setattr("HiCacheStorage", type("HiCacheStorage", (), {"__abstractmethods__": frozenset(["fly"])})),
     "wants fly too"),
    (lambda m: m.setattr("PoolTransferResult", p.HiCacheStorageConfig), "PoolTransferResult without")])
def test_another_interface_is_refused_with_the_versions(monkeypatch, change, words):
    import sglang.srt.mem_cache.hicache_storage as module

    class Patch:
        def setattr(self, name, value):
            monkeypatch.setattr(module, name, value)

        def delattr(self, name):
            monkeypatch.delattr(module, name)

    change(Patch())
    with pytest.raises(ImportError, match=words) as refused:
        interface.require()
    assert "0.5.23" in str(refused.value) and interface.found() in str(refused.value)
