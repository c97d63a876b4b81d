"""libkvbm.aibrix: the connector's calls, on AIBrix's own classes and memory regions."""
from __future__ import annotations

import asyncio
import logging
import warnings
from pathlib import Path
from typing import Any, Iterator

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="pip install torch")
    pytest.importorskip("aibrix_kvcache", reason="pip install aibrix-kvcache==0.8.0")
    from aibrix_blocks import BLOCK, codes, connector, keys, regions, run, slab, spec
    from aibrix_kvcache.memory import MemoryRegion

import libkvbm
from libkvbm.engine import ConfigurationError
from libkvbm.errors import error_of

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def conn() -> Iterator[Any]:
    made = connector()
    made.open().raise_if_not_ok()
    yield made
    made.close()


class TestWeighing:
    """Blocks that take longer to load than to compute are misses."""

    @pytest.mark.parametrize("quick, weigh, found", [(True, "1", "N" * 8), (False, "1", "O" * 8), (True, "0", "O" * 8)])
    def test_what_is_quicker_to_compute_is_not_found(self, tmp_path: Path, quick: bool, weigh: str, found: str) -> None:
        disk = {"DISK": str(tmp_path / "disk"), "DISK_CAPACITY": "64MiB"}
        source, target = slab(8, seed=1), torch.zeros(8 * BLOCK, dtype=torch.uint8)
        first = connector(**disk)
        first.open().raise_if_not_ok()
        assert codes(run(first.mput(keys(8), regions(source, range(8))))) == "O" * 8
        first.manager.flush(10**10)
        first.close()
        conn = connector(**disk, WEIGH=weigh)
        conn.open().raise_if_not_ok()
        conn.register_slabs([source, target]).raise_if_not_ok()
        now = [0]
        conn._speed._now = lambda: now[0]
        for i in range(4):
            asked = keys(2, first=100 + 2 * i)
            assert codes(run(conn.mget(asked, regions(target, [0, 1])))) == "NN"
            now[0] += 2 if quick else 2 * 10**10
            assert codes(run(conn.mput(asked, regions(source, [0, 1])))) == "OO"
        assert conn._speed.block_ns(1) == (1 if quick else 10**10)
        assert codes(run(conn.mget(keys(8), regions(target, range(8))))) == found
        assert torch.equal(source, target) == (found[0] == "O")
        told = conn.manager.stats()
        if weigh == "1" and quick:
            assert (told.loads_not_started, told.blocks_left) == (1, 8)
        elif weigh == "1":
            assert told.load_predicted_ns > 0 and told.load_actual_ns > 0
        conn.close()


class TestBlocks:
    def test_regions_come_back_byte_for_byte_into_other_places(self, conn: Any) -> None:
        source, target = slab(8, seed=1), slab(8, seed=2)
        conn.register_slabs([source, target]).raise_if_not_ok()
        assert codes(run(conn.mput(keys(8), regions(source, range(8))))) == "O" * 8
        assert codes(run(conn.mget(keys(8), regions(target, [7, 6, 5, 4, 3, 2, 1, 0])))) == "O" * 8
        assert torch.equal(source.view(8, BLOCK), target.view(8, BLOCK).flip(0))

    def test_a_batch_may_lie_in_several_slabs_in_any_order(self, conn: Any) -> None:
        one, two, back = slab(3, seed=1), slab(3, seed=2), torch.zeros(6 * BLOCK, dtype=torch.uint8)
        conn.register_slabs([one, two]).raise_if_not_ok()
        mixed = [r for pair in zip(regions(one, range(3)), regions(two, range(3))) for r in pair]
        assert codes(run(conn.mput(keys(6), mixed))) == "O" * 6
        parts = [back[:3 * BLOCK], back[3 * BLOCK:]]
        conn.register_slabs(parts[:1]).raise_if_not_ok()
        into = regions(parts[0], [2]) + regions(parts[1], [0, 1]) + regions(parts[0], [0, 1]) + regions(parts[1], [2])
        assert codes(run(conn.mget(keys(6), into))) == "O" * 6
        for region, origin in zip(into, mixed):
            assert region.tobytes() == origin.tobytes()

    def test_a_region_may_start_anywhere_and_lie_in_a_slab_that_nobody_registered(self, conn: Any) -> None:
        source, target = slab(5, seed=1), slab(5, seed=2)
        conn.register_slabs([source]).raise_if_not_ok()
        odd = type(regions(source, [0])[0])(source, 100, BLOCK)
        before = target.clone()
        assert run(conn.put(b"odd", odd)).is_ok()
        assert run(conn.get(b"odd", type(odd)(target, 333, BLOCK))).is_ok()
        assert torch.equal(target[333:333 + BLOCK], source[100:100 + BLOCK])
        assert torch.equal(target[:333], before[:333]) and torch.equal(target[333 + BLOCK:], before[333 + BLOCK:])

    def test_exists_delete_and_put_again(self, conn: Any) -> None:
        source = slab(2)
        assert run(conn.exists(b"a")).is_not_found()
        assert run(conn.put(b"a", regions(source, [0])[0])).is_ok()
        assert run(conn.put(b"a", regions(source, [0])[0])).is_ok()
        assert run(conn.exists(b"a")).is_ok()
        assert run(conn.delete(b"a")).is_ok()
        assert run(conn.exists(b"a")).is_not_found()
        assert run(conn.delete(b"a")).is_ok()

    def test_keys_of_any_length_are_told_apart(self, conn: Any) -> None:
        source = slab(4)
        names = [b"k", b"k\0", b"k" * 1000, b"k" * 1001]
        assert codes(run(conn.mput(names, regions(source, range(4))))) == "OOOO"
        target = torch.zeros_like(source)
        assert codes(run(conn.mget(names, regions(target, range(4))))) == "OOOO"
        assert torch.equal(source, target)

    def test_nothing_behind_a_missing_block_is_reported_or_written(self, conn: Any) -> None:
        source, target = slab(6), torch.zeros(6 * BLOCK, dtype=torch.uint8)
        run(conn.mput(keys(6), regions(source, range(6))))
        run(conn.delete(keys(6)[2]))
        assert codes(run(conn.mget(keys(6), regions(target, range(6))))) == "OONNNN"
        assert not target[2 * BLOCK:].any()

    def test_everything_is_one_batch(self, conn: Any) -> None:
        assert conn.get_batches([], [], 8) == []
        assert conn.get_batches([1, 2, 3], "abc", 2) == [[(1, "a"), (2, "b"), (3, "c")]]

    def test_prefetch_takes_a_list_or_the_single_key_that_aibrix_gives(self, conn: Any) -> None:
        run(conn.put(b"key 0", regions(slab(1), [0])[0]))
        run(conn.prefetch(b"key 0"))
        run(conn.prefetch(keys(3)))

    def test_many_at_once(self, conn: Any) -> None:
        source, target = slab(64, seed=3), torch.zeros(64 * BLOCK, dtype=torch.uint8)
        conn.register_slabs([source, target])

        async def work() -> list[Any]:
            await asyncio.gather(*[conn.put(k, r) for k, r in zip(keys(64), regions(source, range(64)))])
            return await asyncio.gather(*[conn.get(k, r) for k, r in zip(keys(64), regions(target, range(64)))])

        assert codes(run(work())) == "O" * 64
        assert torch.equal(source, target)


class TestStatuses:
    def test_invalid_for_what_is_no_block_in_host_memory(self, conn: Any) -> None:
        source = slab(2)
        region = regions(source, [0])[0]
        kind = type(region)
        for bad in (kind(source, 0, BLOCK - 1), kind(source, BLOCK + 1, BLOCK), [region], source,
                    kind(source.view(torch.int16), 0, BLOCK)):
            assert run(conn.put(b"x", bad)).is_invalid(), bad
        assert codes(run(conn.mput(keys(3), [region, source, region]))) == "OIO"
        conn.register_slabs([source]).raise_if_not_ok()
        assert run(conn.put(b"short", kind(source, 0, BLOCK - 1))).is_invalid()
        assert conn.register_slabs([torch.zeros(64, 256, dtype=torch.float32)]).is_invalid()

    def test_timeout_when_aibrix_gives_no_time(self, conn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        source = slab(1)
        monkeypatch.setenv("AIBRIX_KV_CACHE_OL_L2_CACHE_PER_TOKEN_TIMEOUT_MS", "0")
        region = regions(source, [0])[0]
        assert run(conn.put(b"late", region)).is_timeout()
        monkeypatch.delenv("AIBRIX_KV_CACHE_OL_L2_CACHE_PER_TOKEN_TIMEOUT_MS")
        assert run(conn.put(b"late", region)).is_ok()
        monkeypatch.setenv("AIBRIX_KV_CACHE_OL_L2_CACHE_PER_TOKEN_TIMEOUT_MS", "0")
        assert run(conn.get(b"late", region)).is_timeout()
        assert region.ref_count == 1

    def test_cancelled_while_it_is_not_open(self, conn: Any) -> None:
        region = regions(slab(1), [0])[0]
        conn.close()
        assert run(conn.put(b"x", region)).is_cancelled()
        assert run(conn.get(b"x", region)).is_cancelled()
        assert run(conn.exists(b"x")).is_cancelled()
        assert run(conn.allocate(b"x", BLOCK)).is_cancelled()
        assert run(conn.acquire(b"x")).is_cancelled()
        assert conn.register_slabs([]).is_cancelled()
        assert conn.close().is_ok()

    def test_error_for_what_is_no_key(self, conn: Any) -> None:
        status = run(conn.exists("text"))
        assert status.is_error() and str(status.value).startswith("TypeError")

    def test_out_of_memory_when_everything_is_held_and_ok_when_it_is_not(self) -> None:
        conn = connector(USE_ZERO_COPY="1")
        conn.open().raise_if_not_ok()
        held = []
        while (status := run(conn.allocate(b"a", BLOCK))).is_ok():
            held.append(status.get())
        assert status.is_out_of_memory() and len(held) > 100
        region = regions(slab(1), [0])[0]
        assert run(conn.put(b"x", region)).is_out_of_memory()
        run(conn.drop(held.pop()))
        assert run(conn.put(b"x", region)).is_ok()
        held.clear()
        conn.close()

    def test_an_inner_fault_is_said_once_and_the_connector_steps_aside(
            self, conn: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        region = regions(slab(1), [0])[0]
        assert run(conn.put(b"x", region)).is_ok()

        def broken(*_: Any, **__: Any) -> Any:
            raise error_of(libkvbm.Status.INTERNAL, "a tier that lies")

        monkeypatch.setattr(libkvbm.Manager, "lookup", broken)
        with caplog.at_level(logging.ERROR, "libkvbm"):
            assert run(conn.get(b"x", region)).is_not_found()
            assert run(conn.exists(b"x")).is_not_found()
        monkeypatch.undo()
        assert len(caplog.records) == 1 and "steps aside" in caplog.text and "a tier that lies" in caplog.text
        assert run(conn.get(b"x", region)).is_not_found()
        refused = run(conn.put(b"x", region))
        assert refused.is_denied() and "a tier that lies" in str(refused.value)
        assert run(conn.delete(b"x")).is_ok() and conn.register_slabs([slab(1)]).is_ok()


class TestFlights:
    def test_regions_are_held_until_the_library_has_done_with_them(self, conn: Any) -> None:
        source = slab(2)
        conn.register_slabs([source])
        region = regions(source, [0])[0]

        async def work() -> None:
            task = asyncio.ensure_future(conn.put(b"x", region))
            await asyncio.sleep(0)  # submitted, and the loop has not looked for completions yet
            assert region.ref_count == 2
            region.ref_down()  # AIBrix gives up
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(10_000):
                if region.destroyed:
                    return
                await asyncio.sleep(0.001)

        run(work())
        assert region.destroyed

    def test_closing_ends_what_is_in_flight_and_frees_its_regions(self, conn: Any) -> None:
        source = slab(8)
        conn.register_slabs([source])
        into = regions(source, range(8))

        async def work() -> Any:
            task = asyncio.ensure_future(conn.mput(keys(8), into))
            await asyncio.sleep(0)
            conn.close()
            return await task

        assert set(codes(run(work()))) <= set("OC")
        assert [region.ref_count for region in into] == [1] * 8

    def test_a_loop_that_was_stopped_does_not_keep_regions(self) -> None:
        conn = connector()
        conn.open().raise_if_not_ok()
        region = regions(slab(1), [0])[0]
        loop = asyncio.new_event_loop()
        task = loop.create_task(conn.put(b"x", region))
        loop.run_until_complete(asyncio.sleep(0))
        conn.close()
        assert region.ref_count == 1
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()


class TestZeroCopy:
    @pytest.fixture
    def conn(self) -> Iterator[Any]:
        made = connector(USE_ZERO_COPY="1")
        made.open().raise_if_not_ok()
        yield made
        made.close()

    @staticmethod
    def memory(region: Any) -> Any:
        from aibrix_kvcache.utils import buffer_to_tensor
        return buffer_to_tensor(region.addr, region.length)

    def test_what_is_written_in_place_is_found_in_place_and_by_copy(self, conn: Any) -> None:
        source, target = slab(1), torch.zeros(BLOCK, dtype=torch.uint8)
        region = run(conn.allocate(b"x", BLOCK)).get()
        self.memory(region).copy_(source)
        assert run(conn.exists(b"x")).is_not_found()
        run(conn.seal(region))
        found = run(conn.acquire(b"x")).get()
        assert torch.equal(self.memory(found), source) and found.length == BLOCK
        run(conn.release(found))
        assert run(conn.get(b"x", regions(target, [0])[0])).is_ok()
        assert torch.equal(source, target)

    def test_what_is_dropped_is_not_found(self, conn: Any) -> None:
        region = run(conn.allocate(b"x", BLOCK)).get()
        run(conn.drop(region))
        assert run(conn.acquire(b"x")).is_not_found()
        assert run(conn.allocate(b"x", BLOCK - 1)).is_invalid()

    def test_the_first_of_two_with_one_key_stays(self, conn: Any) -> None:
        one, two = (run(conn.allocate(b"x", BLOCK)).get() for _ in range(2))
        self.memory(one).fill_(1)
        self.memory(two).fill_(2)
        run(conn.seal(one))
        run(conn.seal(two))
        found = run(conn.acquire(b"x")).get()
        assert self.memory(found).unique().tolist() == [1]
        run(conn.release(found))

    def test_what_is_held_outlives_the_connector_and_what_is_forgotten_is_free_again(self, conn: Any) -> None:
        region = run(conn.allocate(b"x", BLOCK)).get()
        self.memory(region).fill_(3)
        run(conn.seal(region))
        found = run(conn.acquire(b"x")).get()
        manager = conn.manager
        assert manager.stats().holds == 1
        conn.close()
        assert self.memory(found).unique().tolist() == [3]
        run(conn.release(found))
        late = connector(USE_ZERO_COPY="1")
        late.open()
        forgotten = run(late.allocate(b"y", BLOCK)).get()
        assert late.manager.stats().holds == 1
        del forgotten
        assert late.manager.stats().holds == 0
        late.close()


class TestStart:
    def test_what_it_can_do_is_said(self, conn: Any) -> None:
        said = conn.feature
        assert (said.mput_mget, said.prefetch, said.rdma, said.zero_copy) == (True, True, True, False)
        assert not said.gdr_get and not said.gdr_put and conn.name == "KVBM"
        assert connector(USE_ZERO_COPY="1").feature.zero_copy

    def test_opening_twice_is_fine(self, conn: Any) -> None:
        manager = conn.manager
        assert conn.open().is_ok() and conn.manager is manager

    @pytest.mark.parametrize("given", [{"HOST_CAPACITY": "1KiB"}, {"HOST_CAPACITY": "lots"},
                                       {"SETTINGS": '{"host.polcy": "lru"}'}, {"CONFIG_FILE": "nowhere.toml"}])
    def test_an_impossible_configuration_is_invalid_in_a_sentence(self, given: dict[str, str]) -> None:
        status = connector(**given).open()
        assert status.is_invalid() and "libkvbm could not be started: " in str(status.value)

    def test_a_disk_that_another_owns_is_refused_by_its_owner(self, tmp_path: Any) -> None:
        one, two = (connector(DISK=str(tmp_path), DISK_CAPACITY="64MiB") for _ in range(2))
        one.open().raise_if_not_ok()
        status = two.open()
        assert status.is_invalid() and "KVBM_ERR_IN_USE" in str(status.value)
        one.close()
        two.open().raise_if_not_ok()
        two.close()

    def test_a_placement_and_a_missing_spec_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from libkvbm.aibrix import KvbmConnector
        monkeypatch.setenv("AIBRIX_KV_CACHE_OL_KVBM_MODEL", "m")
        with pytest.raises(ConfigurationError, match="META_SERVICE_BACKEND"):
            KvbmConnector.from_envs("c", None, addr="1.2.3.4", port=1, block_spec=spec())  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="block spec is not known"):
            KvbmConnector.from_envs("c", None)  # type: ignore[arg-type]
        monkeypatch.setattr(MemoryRegion, "use_compact_layout", staticmethod(lambda: False))
        with pytest.raises(ConfigurationError, match="TOKEN_VALIDATION_ENABLED to 0"):
            KvbmConnector.from_envs("c", None, block_spec=spec())  # type: ignore[arg-type]

    def test_whatever_a_blocks_bytes_depend_on_makes_another_namespace(self, conn: Any) -> None:
        base = conn.identity
        others = [connector(MODEL="m@2"), connector(conn_id="other_h0_1_l0_1_lcnd16rawc")]
        others += [connector(block_spec=spec(**changed)) for changed in (
            {"dtype": torch.float16}, {"layout": "NCLD"}, {"heads": (2, 3)}, {"heads": (0, 2)}, {"layers": (2, 3)},
            {"dim": 8, "tokens": 32}, {"heads": (0,), "dim": 32})]
        ids = [identity.namespace(conn.manager).id for identity in [base, *(other.identity for other in others)]]
        assert len(set(ids)) == len(ids)
        assert connector().identity == base

    def test_the_number_of_ranks_is_part_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With more ranks than heads, head ids count copies: rank 1 of 8 has not what rank 1 of 4 has."""
        import sys
        import types
        state = types.ModuleType("parallel_state")
        state.get_tensor_model_parallel_world_size = lambda: 8  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "vllm.distributed.parallel_state", state)
        assert connector().identity.ranks == 8
        monkeypatch.delitem(sys.modules, "vllm.distributed.parallel_state")
        assert connector().identity.ranks == 1
