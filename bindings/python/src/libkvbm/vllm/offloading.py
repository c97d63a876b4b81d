"""vLLM's OffloadingConnector for the hooks of ours that work under it."""
from __future__ import annotations

from typing import Any, Iterator, Optional, Union

from . import compat

compat.check(compat.TIER, compat.DIRECT)

import torch  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector  # noqa: E402
from vllm.distributed.parallel_state import get_pp_group  # noqa: E402

from ..engine import ConfigurationError  # noqa: E402
from ..engine.facts.vllm import check_awake  # noqa: E402
from .adapters import asking  # noqa: E402
from .direct import KvbmManager, KvbmOffloadingSpec, KvbmWorker  # noqa: E402
from .pace import PipelineSpeed, prompt_tokens  # noqa: E402
from .pages import starting  # noqa: E402
from .place import Place, StepClock  # noqa: E402
from .reports import Report, report  # noqa: E402
from .tier import KvbmTier  # noqa: E402


class KvbmOffloadingConnector(OffloadingConnector):  # type: ignore[misc]
    """vLLM's OffloadingConnector for libkvbm's hooks. Passes them facts of the engine and its requests that vLLM's own
    does not pass, measures the computing speed of prompts, and lets vLLM compute failed loads of KvbmOffloadingSpec."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        transfer = vllm_config.kv_transfer_config
        spec = (transfer.kv_connector_extra_config or {}).get("spec_name")
        if spec == KvbmOffloadingSpec.__name__ and transfer.kv_load_failure_policy != "recompute":
            raise ConfigurationError("KvbmOffloadingSpec needs kv_load_failure_policy recompute in "
                                     "kv_transfer_config: with fail a damaged block would end the request")
        if spec == KvbmOffloadingSpec.__name__:
            check_awake(vllm_config)
        with starting(vllm_config):
            super().__init__(vllm_config, role, kv_cache_config)
        self._groups = len(kv_cache_config.kv_cache_groups)
        self._speed = PipelineSpeed(int(vllm_config.parallel_config.pipeline_parallel_size))
        self._stage = 0
        self._measured: list[tuple[int, int]] = []  # by this worker, and not reported yet
        self._clock: Optional[StepClock] = None
        self._tokens = 0  # of prompts, in the worker's step
        self._requests: dict[str, Any] = {}
        for ours in self._ours():
            ours.speed = self._speed
        self._loads: dict[int, str] = {}
        self._failed: set[int] = set()
        if self.connector_worker is not None:
            self.connector_worker.spec.failures_reported = True

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        with starting(self._vllm_config):
            super().register_kv_caches(kv_caches)
        self._stage = int(get_pp_group().rank_in_group)
        try:
            self._clock = StepClock(Place.of(view for view in kv_caches.values() if isinstance(view, torch.Tensor)))
        except ConfigurationError:  # a device with an unknown clock
            pass

    def _ours(self) -> Iterator[Union[KvbmManager, KvbmTier]]:
        """The parts of libkvbm on the scheduler's side."""
        if self.connector_scheduler is not None:
            manager = self.connector_scheduler.manager
            for one in (manager, *getattr(manager, "secondary_tiers", ())):
                if isinstance(one, (KvbmManager, KvbmTier)):
                    yield one

    def on_new_request(self, request: Any) -> None:
        self._requests[request.request_id] = request
        with asking(request):
            super().on_new_request(request)

    def request_finished(self, request: Any, block_ids: list[int]) -> Any:
        self._requests.pop(request.request_id, None)
        return super().request_finished(request, block_ids)

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> Any:
        self._requests.pop(request.request_id, None)
        return super().request_finished_all_groups(request, block_ids)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        made = super().build_connector_meta(scheduler_output)
        made.kvbm_prompt_tokens = prompt_tokens(scheduler_output, self._requests)
        return made

    def reset_cache(self) -> Optional[bool]:
        done: Optional[bool] = super().reset_cache()
        # vLLM leaves the tiers below its host pool as they are; after a change of weights they would be another's.
        for ours in self._ours():
            if isinstance(ours, KvbmTier):
                ours.invalidate()
        return done

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        worker = None if self.connector_worker is None else self.connector_worker.worker
        if isinstance(worker, KvbmWorker):
            worker.begin()
        self._tokens = getattr(connector_metadata, "kvbm_prompt_tokens", 0)
        if self._clock is not None and self._tokens:
            self._clock.begin()
        elif self._clock is not None:
            self._clock.skip()

    def wait_for_save(self) -> None:
        if self._clock is not None:
            self._measured += self._clock.end(self._tokens)
        super().wait_for_save()

    def build_connector_worker_meta(self) -> Any:
        measured, self._measured = self._measured, []
        return report(super().build_connector_worker_meta(), self._stage, measured)

    def update_connector_output(self, connector_output: Any) -> None:
        told = connector_output.kv_connector_worker_meta
        if isinstance(told, Report):
            for stage, (tokens, ns) in told.prompts.items():
                self._speed.measured(stage, tokens, ns)
        super().update_connector_output(connector_output)

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        self._loads.update((job_id, job.req_id) for job_id, job in self._connector_metadata.load_jobs.items())
        super().start_load_kv(forward_context, **more)

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        results = super().get_transfer_results(finished_req_ids)
        worker = self.connector_worker.worker
        # Of KvbmTieringSpec vLLM hears of failed blocks before it schedules them.
        blocks, jobs = worker.take_failed() if isinstance(worker, KvbmWorker) else (set(), set())
        if self._groups == 1:
            self._failed |= blocks
        else:  # block ids are those of a group: the whole request is computed
            results.failed_recving.update(self._loads[job_id] for job_id in jobs if job_id in self._loads)
        for job_id, req_id in list(self._loads.items()):
            if req_id in results.finished_recving:
                del self._loads[job_id]
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed
