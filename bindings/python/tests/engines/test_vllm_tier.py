"""libkvbm.vllm's tier and spec against vLLM's own tiered offloading manager, without an engine."""
from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

# vLLM and what it imports warn on their own account.
pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM 0.32 or 0.33 (tests/integration/engines/environment)")
    import numpy
    from vllm.v1.kv_offload.base import GPULoadStoreSpec, LookupResult
    from vllm_parts import LAYERS, PAGE, Parts, caches_of, config_of, engine_of, keys_of

    from libkvbm.engine import ConfigurationError
    from libkvbm.errors import error_of
    from libkvbm.vllm import KvbmOffloadingSpec, KvbmTieringSpec, compat, store
    from libkvbm.vllm.worker import groups_of

OWN = {"pool": "64KiB", "settings": {"host.capacity": "1MiB"}}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Parts] = []

    def make(groups: int = 1, blocks_per_chunk: int = 1, engine: Any = None, **own: Any) -> Parts:
        config = config_of({"kvbm": OWN | own}, groups=groups, blocks_per_chunk=blocks_per_chunk)
        made.append(Parts(KvbmTieringSpec(config), caches_of(groups), engine))
        return made[-1]

    yield make
    for parts in made:
        parts.close()


def flipped(directory: Path, pattern: bytes) -> int:
    """Flips one bit in every record on disk that holds the pattern; returns how many."""
    n = 0
    for file in directory.rglob("*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            at = data.find(pattern)
            if at >= 0:
                data[at] ^= 1
                file.write_bytes(data)
                n += 1
    return n


def test_what_was_stored_comes_back_in_another_process_of_the_engine(make: Any, tmp_path: Path) -> None:
    disk = str(tmp_path / "disk")
    first = make(disk=disk, disk_capacity="64MiB")
    for block in (3, 1, 7):
        first.fill(block, block)
    keys = keys_of(3)
    assert first.store(keys, [3, 1, 7]) == keys
    first.close()
    again = make(disk=disk, disk_capacity="64MiB")
    request = again.request()
    assert again.find(keys, request) == 3
    again.load(keys, [0, 5, 2], request)
    assert [again.content(block) for block in (0, 5, 2)] == [{3}, {1}, {7}]
    assert again.find(keys_of(3, what="another"), again.request()) == 0


def test_a_flipped_bit_on_disk_is_a_miss(make: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    first = make(disk=str(disk), disk_capacity="64MiB")
    keys = keys_of(3)
    for block in range(3):
        first.fill(block, 40 + block)
    first.store(keys, [0, 1, 2])
    first.close()
    assert flipped(disk, bytes([41]) * 256) == 1
    again = make(disk=str(disk), disk_capacity="64MiB")
    request = again.request()
    assert again.find(keys, request) == 1
    again.load(keys[:1], [4], request)
    assert again.content(4) == {40}


def test_another_model_is_a_clean_miss(make: Any, tmp_path: Path) -> None:
    models = []
    for weight in (b"1", b"2"):
        models.append(tmp_path / weight.decode() / "model")
        models[-1].mkdir(parents=True)
        (models[-1] / "model.safetensors").write_bytes(weight * 100_000)
    disk = {"disk": str(tmp_path / "disk"), "disk_capacity": "64MiB"}
    first = make(engine=engine_of(str(models[0])), **disk)
    first.store(keys_of(2), [0, 1])
    first.close()
    changed = make(engine=engine_of(str(models[1])), **disk)
    assert changed.find(keys_of(2), changed.request()) == 0
    changed.close()
    same = make(engine=engine_of(str(models[0])), **disk)
    assert same.find(keys_of(2), same.request()) == 2


def test_groups_and_chunks_of_several_blocks(make: Any) -> None:
    parts = make(groups=2, blocks_per_chunk=2)
    for block in range(8):
        parts.fill(block, 10 + block)
    keys = keys_of(2, 0) + keys_of(1, 1)
    parts.store(keys, [0, 1, 2, 3, 4, 5], (4, 2), (0, 0))
    request = parts.request()
    assert parts.find(keys, request) == 3
    # A load may begin in the middle of a chunk.
    parts.load(keys, [8, 9, 10, 11, 12], request, (3, 2), (1, 0))
    assert [parts.content(block) for block in (8, 9, 10, 11, 12)] == [{11}, {12}, {13}, {14}, {15}]


def test_pairs_blocks_and_chunks() -> None:
    spec = GPULoadStoreSpec([5, 6, 7, 9], [3, 1], [1, 4])
    found = list(groups_of(spec, numpy.array([30, 31, 40]), 2))
    assert [(g.number, g.blocks.tolist(), g.chunks.tolist(), g.parts.tolist()) for g in found] == [
        (0, [5, 6, 7], [30, 31, 31], [1, 0, 1]), (1, [9], [40], [0])]
    with pytest.raises(ValueError, match="do not belong together"):
        list(groups_of(spec, numpy.array([30, 31, 40, 41]), 2))


def test_what_another_process_has_is_asked_for_and_not_waited_for(make: Any, tmp_path: Path) -> None:
    # On a busy machine the owner answers late, and by default a lookup waits for it 20 ms.
    shared = {"disk": str(tmp_path / "disk"), "disk_capacity": "64MiB", "share": True,
              "settings": {"host.capacity": "1MiB", "share_ask": "5s"}}
    owner, client = make(**shared), make(**shared)
    keys = keys_of(3)
    for block in range(3):
        owner.fill(block, 60 + block)
    owner.store(keys, [0, 1, 2])
    request = client.request()
    assert client.manager.lookup(keys[0], request) is LookupResult.RETRY
    assert client.find(keys, request) == 3
    client.load(keys, [7, 8, 9], request)
    assert [client.content(block) for block in (7, 8, 9)] == [{60}, {61}, {62}]
    assert client.find(keys_of(2, what="another"), client.request()) == 0


def test_stores_are_chains_whatever_order_they_come_in(make: Any) -> None:
    parts = make()
    tier = parts.manager.secondary_tiers[0]
    keys = keys_of(6)
    context = parts.request()
    for i, key in enumerate(keys):
        context.set_offload_key_position(key, 32 * (i + 1))
    jobs = [SimpleNamespace(keys={keys[1], keys[0], keys[2]}, req_context=context),
            SimpleNamespace(keys={keys[4], keys[3]}, req_context=context)]
    for job in jobs:
        job.chunk_ids = numpy.array([keys.index(key) + 10 for key in job.keys])
    assert tier._in_order(jobs[0]) == (keys[:3], [10, 11, 12], None)
    assert tier._in_order(jobs[1]) == (keys[3:5], [13, 14], keys[2])


def test_steps_aside_and_finishes_every_job(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    parts = make()
    keys = keys_of(2)
    parts.store(keys, [0, 1])
    tier = parts.manager.secondary_tiers[0]
    tier._store.aside.step("the test says so")
    assert [r.message for r in caplog.records if "steps aside" in r.message] == [
        "libkvbm's tier steps aside, and the engine goes on without it: the test says so"]
    # vLLM's pool still has these; nothing more comes of us, and nothing hangs.
    assert parts.find(keys_of(2, what="new"), parts.request()) == 0
    parts.store(keys_of(2, what="later"), [2, 3])


def test_refuses_what_it_cannot_mean(make: Any, tmp_path: Path) -> None:
    for own, said in (({"disc": "/x"}, "there is no option 'disc'"), ({"pool": "12 parsecs"}, "a size is a number"),
                      ({"pool": "1KiB"}, "give more to pool"), ({"load_timeout_s": 0}, "load_timeout_s is 0"),
                      ({"settings": {"host.capacity": "1B"}}, "libkvbm could not be started"),
                      ({"secret_file": str(tmp_path / "none")}, "secret_file cannot be read")):
        with pytest.raises(ConfigurationError, match=said):
            make(**own)


def test_counts_in_vllm_s_metrics(make: Any) -> None:
    parts = make()
    parts.store(keys_of(3), [0, 1, 2])
    stats = parts.manager.get_stats()
    values = {name: sum(by.values()) for name, by in stats.data["data"].items() if "kvbm" in name}
    assert values["vllm:kvbm_tier_blocks"] == 3 and values["vllm:kvbm_aside"] == 0
    assert values["vllm:kvbm_tier_store_bytes"] >= 3 * PAGE * LAYERS
    known = KvbmTieringSpec.build_metric_definitions({"kvbm": OWN})
    assert set(values) <= set(known)


def test_the_interface_is_there_and_another_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compat.missing_of(compat.TIER, compat.SPEC, compat.DIRECT) == []
    import vllm
    from vllm.v1.kv_offload.tiering import base

    monkeypatch.setattr(vllm, "__version__", "0.99.1")
    monkeypatch.delattr(base.SecondaryTierManager, "drain_jobs")
    with pytest.raises(ConfigurationError, match=r"knows vLLM 0.32 and 0.33; .*0.99.1, has no .*drain_jobs"):
        compat.check(compat.TIER)


@pytest.mark.parametrize("where", ["of the library", "of ours"])
def test_an_asking_thread_that_fails_leaves_no_request_to_ask_for_ever(make: Any, tmp_path: Path, where: str,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    shared = {"disk": str(tmp_path / "disk"), "disk_capacity": "64MiB", "share": True}
    make(**shared)
    client = make(**shared)
    request = client.request()

    def broken(*_: Any) -> Any:
        raise error_of(-600, "broken") if where == "of the library" else RuntimeError("broken")

    monkeypatch.setattr(store, "present", broken)
    assert client.find(keys_of(2), request) == 0
    assert "broken" in (client.manager.secondary_tiers[0]._store.aside.reason or "")
    client.store(keys_of(2), [0, 1])  # ends, and nothing is kept


def test_a_fetch_that_fails_is_waited_for_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"kvbm": {"settings": {"host.capacity": "1MiB"}, "disk": str(tmp_path / "disk"), "disk_capacity": "64MiB"}}
    for again in (False, True):
        spec = KvbmOffloadingSpec(config_of(options))
        spec.failures_reported = True
        parts = Parts(spec, caches_of())
        if not again:
            parts.store(keys_of(2), [0, 1])
        else:
            def broken(*_: Any, **__: Any) -> Any:
                raise RuntimeError("broken")

            monkeypatch.setattr(type(parts.manager._vault.store.manager), "prefetch_submit", broken)
            assert parts.find(keys_of(2), parts.request()) == 0
            assert not parts.manager.has_pending_work()
        parts.close()
