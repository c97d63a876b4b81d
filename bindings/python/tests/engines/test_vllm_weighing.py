"""vLLM's offloading hooks leave to compute what would take longer to load."""
from __future__ import annotations

import time
import warnings
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any, Iterator

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM 0.32 or 0.33 (tests/integration/engines/environment)")
    from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
    from vllm.v1.kv_offload.base import LookupResult
    from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
    from vllm_parts import Parts, caches_of, config_of, keys_of

    from libkvbm.engine import ConfigurationError, PrefillSpeed
    from libkvbm.vllm import KvbmOffloadingSpec, KvbmTieringSpec
    from libkvbm.vllm.pace import PipelineSpeed, prompt_tokens
    from libkvbm.vllm.reports import report

TOKENS = 32


def speed(block_ns: int) -> PrefillSpeed:
    """Of an engine that computes a block in this time."""
    made = PrefillSpeed()
    made.measured(TOKENS, block_ns)
    return made


@pytest.fixture(params=[KvbmTieringSpec, KvbmOffloadingSpec], ids=["tiering", "direct"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A hook with four blocks on its disk, as after a restart; `on` is the weighing object."""
    made: list[Parts] = []

    def make(**own: Any) -> Parts:
        for parts in made:
            parts.close()
        given: dict[str, Any] = {"settings": {"host.capacity": "1MiB"}, "disk": str(tmp_path / "disk"),
                                 "disk_capacity": "64MiB"} | own
        if request.param is KvbmTieringSpec:
            given["pool"] = "64KiB"
        spec = request.param(config_of({"kvbm": given}))
        spec.failures_reported = True
        made[:] = [Parts(spec, caches_of())]
        return made[0]

    def restarted(**own: Any) -> tuple[Parts, Any]:
        parts = make(**own)
        return parts, getattr(parts.manager, "secondary_tiers", [parts.manager])[0]

    first = make()
    for block in range(4):
        first.fill(block, 20 + block)
    assert first.store(keys_of(4), [0, 1, 2, 3]) == keys_of(4)
    yield restarted
    made[0].close()


def counts(parts: Parts) -> dict[str, float]:
    parts.step()
    data = parts.manager.get_stats().data["data"]
    return {name.removeprefix("vllm:kvbm_"): sum(by.values()) for name, by in data.items() if "kvbm" in name}


def test_what_is_quicker_to_compute_is_left(fresh: Any) -> None:
    parts, on = fresh()
    on.speed = speed(1)
    # The first one is fetched all the same, to measure by; it may be there before the engine asks again.
    assert parts.find(keys_of(4), parts.request()) <= 1
    told = counts(parts)
    assert told["left_blocks"] == 4 and told["loads_not_started"] == 1


def test_what_is_quicker_to_load_is_loaded_and_foreseen(fresh: Any) -> None:
    parts, on = fresh()
    on.speed = speed(10**10)
    request = parts.request()
    assert parts.find(keys_of(4), request) == 4
    parts.load(keys_of(4), [5, 6, 7, 8], request)
    assert [parts.content(block) for block in (5, 6, 7, 8)] == [{20}, {21}, {22}, {23}]
    told = counts(parts)
    assert "left_blocks" not in told
    assert told["load_predicted_seconds"] > 0 and told["load_actual_seconds"] > 0


def test_nothing_is_weighed_before_a_prompt_was_computed_or_where_it_is_switched_off(fresh: Any) -> None:
    parts, on = fresh()
    assert parts.find(keys_of(4), parts.request()) == 4
    parts, on = fresh(weigh=False)
    on.speed = speed(1)
    assert parts.find(keys_of(4), parts.request()) == 4
    with pytest.raises(ConfigurationError, match="weigh is 'no'"):
        fresh(weigh="no")
    fresh()


def test_a_fetch_that_runs_late_is_not_waited_for(tmp_path: Path) -> None:
    spec = KvbmOffloadingSpec(config_of({"kvbm": {"settings": {"host.capacity": "1MiB"}}}))
    spec.failures_reported = True
    parts = Parts(spec, caches_of())
    request, (key, other) = parts.request(), keys_of(2)
    parts.manager._fetching.update({bytes(key): time.monotonic_ns() + 10**12, bytes(other): time.monotonic_ns()})
    assert parts.manager.lookup(key, request) is LookupResult.RETRY
    assert parts.manager.lookup(other, request) is LookupResult.MISS
    parts.manager._fetching.clear()
    parts.close()


def test_steps_that_do_not_compute_prompts_say_nothing_of_their_speed() -> None:
    requests = {"decoding": Made(num_computed_tokens=96, num_tokens=97), "prompt": Made(num_computed_tokens=0, num_tokens=64)}

    def step(**scheduled: int) -> int:
        return prompt_tokens(Made(num_scheduled_tokens=scheduled, total_num_scheduled_tokens=sum(scheduled.values())), requests)

    assert (step(decoding=1), step(decoding=1, prompt=64), step(decoding=1, prompt=4), step(unknown=64)) == (0, 64, 0, 0)


def told_by(*workers: Any) -> Any:
    """The result of vLLM's own aggregation of several workers' answers."""
    outputs = [ModelRunnerOutput(req_ids=[], req_id_to_index={},
                                 kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=meta)) for meta in workers]
    return KVOutputAggregator(len(workers)).aggregate(outputs).kv_connector_output.kv_connector_worker_meta


def test_of_several_workers_the_slowest_of_each_stage_counts_and_no_job_is_lost() -> None:
    def done(*jobs: int) -> Any:
        return OffloadingWorkerMetadata(completed_jobs={job: 1 for job in jobs})

    quick, slow = report(done(1), 0, [(64, 50), (64, 50)]), report(done(1, 2), 0, [(128, 200)])
    behind = report(done(3), 1, [(64, 30)])
    told = told_by(quick, report(None, 0, []), slow, behind)
    assert told.prompts == {0: (128, 200), 1: (64, 30)} and told.completed_jobs == {1: 2, 2: 1, 3: 1}
    # A worker that only measured, and one that only has finished a job.
    told = told_by(report(None, 0, [(64, 10)]), report(done(4), 0, []))
    assert told.prompts == {0: (64, 10)} and told.completed_jobs == {4: 1}
    assert report(None, 0, []) is None


def test_a_prompt_goes_through_all_stages() -> None:
    pipeline = PipelineSpeed(2)
    pipeline.measured(0, 64, 640)
    assert pipeline.block_ns(32) == 0  # nothing was heard of the second
    pipeline.measured(1, 64, 1280)
    assert pipeline.block_ns(32) == 960
    pipeline.measured(7, 64, 10**9)  # not one of this engine's
    assert pipeline.block_ns(32) == 960
