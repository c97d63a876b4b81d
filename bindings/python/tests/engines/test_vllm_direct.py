"""libkvbm.vllm's direct offloading against vLLM's own interfaces, without an engine."""
from __future__ import annotations

import gc
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM 0.32 or 0.33 (tests/integration/engines/environment)")
    from vllm.v1.kv_offload.base import GPULoadStoreSpec, LookupResult
    from vllm_parts import Parts, caches_of, config_of, engine_of, keys_of

    from libkvbm.engine import ConfigurationError
    from libkvbm.vllm import KvbmOffloadingConnector, KvbmOffloadingSpec, pace, pages

OWN = {"settings": {"host.capacity": "1MiB"}}


def spec_of(own: dict[str, Any], groups: int = 1, **parallel: int) -> Any:
    spec = KvbmOffloadingSpec(config_of({"kvbm": OWN | own}, groups=groups, **parallel))
    spec.failures_reported = True
    return spec


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[Parts] = []

    def make(groups: int = 1, **own: Any) -> Parts:
        made.append(Parts(spec_of(own, groups), caches_of(groups)))
        return made[-1]

    yield make
    for parts in made:
        parts.close()


def test_stores_and_loads_without_a_pool(make: Any) -> None:
    parts = make()
    for block in (3, 1, 7):
        parts.fill(block, block)
    keys = keys_of(3)
    assert parts.store(keys, [3, 1, 7]) == keys
    assert parts.store(keys, [3, 1, 7]) == []  # existing blocks are not stored again
    request = parts.request()
    assert parts.find(keys, request) == 3
    parts.load(keys, [0, 5, 2], request)
    assert [parts.content(block) for block in (0, 5, 2)] == [{3}, {1}, {7}]
    assert parts.worker.take_failed() == (set(), set())


def test_a_prepared_store_is_waited_for_until_it_ends_and_one_that_vllm_forgets_is_not(make: Any) -> None:
    vault = make().manager._vault
    forgotten, stored = b"forgotten", b"stored"
    vault.storing([forgotten, stored])
    vault.submitted([stored])
    for _ in range(100):
        vault.step()
    assert not vault.being_stored(forgotten) and vault.being_stored(stored)
    vault.stored([stored])
    assert not vault.being_stored(stored) and not vault.being_stored(b"another")
    vault.step()
    assert not vault._storing


def test_a_reset_forgets_what_was_stored_and_keeps_nothing_that_was_computed_before_it(make: Any) -> None:
    parts = make()
    keys = keys_of(3)
    assert parts.store(keys[:2], [3, 1]) == keys[:2]
    request = parts.request()
    late = parts.manager.prepare_store(keys, request)
    assert late.keys_to_store == keys[2:]
    parts.manager.reset_cache()  # vLLM submits a store a step after it was prepared
    assert parts.worker.submit_store(99, GPULoadStoreSpec([7], [1], [0]), late.store_spec)
    assert [result.job_id for result in parts.worker.get_finished()] == [99]
    for key in keys:
        assert parts.find([key], parts.request()) == 0
    assert parts.store(keys, [4, 5, 6]) == keys and parts.find(keys, parts.request()) == 3


def test_an_engine_that_computes_between_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [10**12]
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic_ns=lambda: clock[0]))
    step = pace.Pace()
    assert not step.idle()
    clock[0] += 600_000
    assert step.idle()
    clock[0] += 20_000_000  # the time of a decoding step
    assert not step.idle()
    clock[0] += 500_000
    step.rested()
    clock[0] += 1_900_000
    assert step.idle()


def test_fetches_from_disk_before_it_says_hit(make: Any, tmp_path: Path) -> None:
    own = {"disk": str(tmp_path / "disk"), "disk_capacity": "64MiB"}
    first = make(groups=2, **own)
    first.fill(3, 3)
    first.fill(4, 4)
    keys = keys_of(1, 0) + keys_of(1, 1)
    first.store(keys, [3, 4], (1, 1), (0, 0))
    first.close()
    again = make(groups=2, **own)
    request = again.request()
    assert again.manager.lookup(keys[0], request) is LookupResult.RETRY
    assert again.find(keys, request) == 2
    again.load(keys, [8, 9], request, (1, 1), (0, 0))
    assert [again.content(8), again.content(9)] == [{3}, {4}]


def test_damage_on_disk_is_a_miss_before_anything_is_promised(make: Any, tmp_path: Path) -> None:
    own = {"disk": str(tmp_path / "disk"), "disk_capacity": "64MiB"}
    first = make(**own)
    keys = keys_of(2)
    first.fill(0, 40)
    first.fill(1, 41)
    first.store(keys, [0, 1])
    first.close()
    for file in (tmp_path / "disk").rglob("*"):
        data = bytearray(file.read_bytes()) if file.is_file() else b""
        if (at := data.find(bytes([41]) * 256)) >= 0:
            data[at] ^= 1
            file.write_bytes(data)
    again = make(**own)
    assert again.find(keys, again.request()) == 1


def test_blocks_that_were_dropped_meanwhile_are_reported(make: Any) -> None:
    parts = make()
    keys = keys_of(2)
    parts.store(keys, [0, 1])
    request = parts.request()
    assert parts.find(keys, request) == 2
    vault = parts.manager._vault
    group = vault.group(0)
    found = parts.manager.prepare_load(keys, request)
    found.matches.clear()  # as if the lookup had found nothing any more
    parts.manager.prepare_load = lambda keys, request: found
    parts.load(keys, [4, 5], request)
    assert parts.worker.take_failed() == ({4, 5}, {2})
    assert group.cache is not None
    # The request would load them for ever. Another one may load them, and the request that computes them stores them
    # again.
    assert parts.find(keys, request) == 0
    assert parts.find(keys, parts.request()) == 2
    assert parts.store(keys, [4, 5]) == keys
    assert parts.find(keys, request) == 2


def test_waits_for_a_store_that_another_request_has_begun(make: Any) -> None:
    parts = make()
    keys = keys_of(2)
    request = parts.request()
    output = parts.manager.prepare_store(keys, request)
    other = parts.request()
    assert parts.manager.lookup(keys[0], other) is LookupResult.HIT_PENDING
    assert parts.manager.prepare_store(keys, other).keys_to_store == []
    assert parts.worker.submit_store(9, GPULoadStoreSpec([0, 1], [2], [0]), output.store_spec)
    parts.worker.wait({9})
    assert parts.find(keys, other) == 2


def test_what_is_looked_up_and_not_loaded_is_held_for_a_step_only(make: Any) -> None:
    parts = make()
    parts.store(keys_of(2), [0, 1])
    request = parts.request()
    assert parts.find(keys_of(2), request) == 2
    manager = parts.manager._vault.store.manager
    assert manager.stats().matches == 2
    parts.step()
    gc.collect()
    assert manager.stats().matches == 0


def test_steps_aside(make: Any) -> None:
    parts = make()
    keys = keys_of(2)
    parts.store(keys, [0, 1])
    request = parts.request()
    assert parts.find(keys, request) == 2
    source = parts.manager.prepare_load(keys, request)
    parts.manager._vault.store.aside.step("the test says so")
    parts.manager.prepare_load = lambda keys, request: source
    parts.load(keys, [4, 5], request)
    assert parts.worker.take_failed()[0] == {4, 5}
    assert parts.find(keys, parts.request()) == 0
    assert parts.store(keys_of(2, what="later"), [0, 1]) == []


def test_refuses_what_it_is_not_for() -> None:
    with pytest.raises(ConfigurationError, match="for one worker, not 2: KvbmTieringSpec does it"):
        spec_of({}, world_size=2)
    with pytest.raises(ConfigurationError, match="one process"):
        spec_of({}).get_manager()
    plain = spec_of({})
    plain.failures_reported = False
    with pytest.raises(ConfigurationError, match="KvbmOffloadingConnector"):
        plain.get_worker(caches_of())
    with pytest.raises(ConfigurationError, match="which revision"):  # with vLLM's own connector
        spec_of({}).get_worker(caches_of())
    with pytest.raises(ConfigurationError, match="there is no option 'disc'"), pages.starting(engine_of()):
        spec_of({"disc": "/x"}).get_worker(caches_of())
    config = SimpleNamespace(kv_transfer_config=SimpleNamespace(
        kv_load_failure_policy="fail", kv_connector_extra_config={"spec_name": "KvbmOffloadingSpec"}))
    with pytest.raises(ConfigurationError, match="kv_load_failure_policy recompute"):
        KvbmOffloadingConnector(config, None, None)
