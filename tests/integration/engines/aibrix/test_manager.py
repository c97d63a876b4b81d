"""The connector under AIBrix's real BaseKVCacheManager."""
from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from serving import TOKENS, block_spec, serving

import libkvbm.aibrix

pytestmark = pytest.mark.filterwarnings("ignore")
N = 32


def test_what_was_put_comes_back_byte_for_byte() -> None:
    with serving() as it:
        assert it.put(N).get() == N * TOKENS
        assert it.manager.exists(None, it.tokens(N)).get() == N * TOKENS
        assert it.get(N) == ("OK", N)
        assert it.get(N, prompt=1) == ("NOT_FOUND", 0)
        assert it.kvbm.stats().tiers[0].stores == N


@pytest.mark.parametrize("ingestion", ["ALL", "HOT", "EVICTED"])
def test_l1_is_filled_from_kvbm_again_after_it_was_wiped(ingestion: str) -> None:
    with serving(L1_CACHE_ENABLED=1, L2_CACHE_INGESTION_TYPE=ingestion, L1_CACHE_CAPACITY_GB=0.001) as it:
        it.put(N)  # 512 KiB into an L1 of 1 MiB
        if ingestion == "HOT":
            for _ in range(3):
                assert it.get(N) == ("OK", N)
        if ingestion == "EVICTED":
            for prompt in range(1, 6):
                it.put(N, prompt)
        it.wipe_l1(N)
        before = it.kvbm.stats().tiers[0].loads
        assert it.get(N) == ("OK", N)
        assert it.kvbm.stats().tiers[0].loads == before + N
        assert it.get(N) == ("OK", N)  # from L1 now
        assert it.kvbm.stats().tiers[0].loads == before + N


def test_writes_in_the_background_are_there_after_a_flush() -> None:
    with serving(L2_CACHE_INGESTION_MAX_INFLIGHT_TOKENS=4096) as it:
        for prompt in range(8):
            assert it.put(N, prompt).is_ok()
        assert it.manager.flush().is_ok()
        assert [it.get(N, prompt) for prompt in range(8)] == [("OK", N)] * 8
        assert it.kvbm.stats().holds == 0


@pytest.mark.parametrize("hole", [0, 1, 7, 8, 15, 31])
@pytest.mark.parametrize("zero_copy", [0, 1])
def test_a_hole_ends_the_prefix_wherever_it_is(hole: int, zero_copy: int) -> None:
    """AIBrix's own backends give wrong blocks here: it takes as many blocks from the front as there were hits."""
    with serving(L2_CACHE_OP_BATCH=8, KVBM_USE_ZERO_COPY=zero_copy) as it:
        it.put(N)
        it.manager.flush()
        it.call(it.backend.delete(it.keys(N)[hole]))
        assert it.get(N) == (("OK", hole) if hole else ("NOT_FOUND", 0))


def test_zero_copy_writes_and_reads_in_place() -> None:
    with serving(KVBM_USE_ZERO_COPY=1, L1_CACHE_ENABLED=1) as it:
        assert it.put(N).get() == N * TOKENS
        it.manager.flush()
        assert it.get(N) == ("OK", N)
        status = it.manager.acquire(None, it.tokens(N))
        assert it.kvbm.stats().holds == N
        status.get()[1].release()
        it.manager.flush()
        assert it.kvbm.stats().holds == 0
        handle = it.manager.allocate_for(None, it.tokens(4, prompt=9)).get()
        handle.release()  # never put
        it.manager.flush()
        assert it.get(4, prompt=9) == ("NOT_FOUND", 0) and it.kvbm.stats().holds == 0


@pytest.mark.parametrize("builder", ["RAW", "ROLLING_HASH", "SIMPLE_HASH"])
def test_every_key_builder(builder: str) -> None:
    with serving(L2_CACHE_KEY_BUILDER=builder) as it:
        it.put(N)
        it.put(N, prompt=1)
        assert [it.get(N, prompt) for prompt in (0, 1, 2)] == [("OK", N), ("OK", N), ("NOT_FOUND", 0)]


def test_a_prompt_that_goes_on_is_found_from_its_start() -> None:
    with serving() as it:
        it.put(8)
        it.put(20, first=8)
        assert it.get(N) == ("OK", 20)


@pytest.mark.parametrize("layout", ["LCND", "NCLD"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8", "float32"])
def test_layouts_and_element_types(layout: str, dtype: str) -> None:
    with serving(block_spec(dtype, layout)) as it:
        it.put(N)
        assert it.get(N) == ("OK", N)


def test_a_full_host_tier_forgets_but_never_mixes_up() -> None:
    with serving(KVBM_HOST_CAPACITY="2MiB") as it:  # about 120 blocks of 16 KiB
        came = []
        for prompt in range(16):
            assert it.put(N, prompt).is_ok()
            came.append(it.get(N, prompt))
        assert came == [("OK", N)] * 16
        late = [it.get(N, prompt)[1] for prompt in range(16)]
        assert 1 <= sum(n == N for n in late) <= 4
        assert it.kvbm.stats().tiers[0].evictions > 300


def test_regions_of_a_get_that_was_given_up_are_not_written_to_later() -> None:
    """The manager frees the regions when its time is up, and hands them to the next request."""
    with serving(KVBM_HOST_CAPACITY="256MiB") as it:
        n = 200
        it.put(n)
        slow = it.manager._l2_cache_per_token_timeout_ms
        seen = set()
        for _ in range(30):
            it.manager._l2_cache_per_token_timeout_ms = 0
            seen.add(it.manager.acquire(None, it.tokens(n)).error_code.name)
            it.manager._l2_cache_per_token_timeout_ms = slow
            handle = it.manager.allocate_for(None, it.tokens(n, prompt=1)).get()
            tensors = handle.to_tensors()
            for tensor in tensors:
                tensor.fill_(7)
            for tensor in tensors:
                assert bool((tensor == 7).all())
            handle.release()
        assert "TIMEOUT" in seen
        assert it.get(n) == ("OK", n)


def test_no_time_at_all_is_a_timeout_and_the_next_call_is_served() -> None:
    with serving() as it:
        it.put(N)
        it.manager._l2_cache_per_token_timeout_ms = 0
        assert it.get(N)[0] in ("TIMEOUT", "NOT_FOUND", "OK")
        it.manager._l2_cache_per_token_timeout_ms = 200
        assert it.get(N) == ("OK", N)


def test_many_threads_at_once() -> None:
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(12):
                it.put(8, prompt=number)
                assert it.get(8, prompt=number) == ("OK", 8)
                it.get(8, prompt=(number + i) % 6)
        except BaseException as error:
            wrong.append(error)

    with serving(L1_CACHE_ENABLED=1, L2_CACHE_INGESTION_TYPE="ALL", L1_CACHE_CAPACITY_GB=0.001) as it:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not wrong, wrong


def test_closing_while_operations_are_in_flight() -> None:
    for round_ in range(5):
        with serving(L2_CACHE_INGESTION_MAX_INFLIGHT_TOKENS=65536) as it:
            for prompt in range(20):
                it.put(N, prompt)
            backend = it.backend
            began = time.monotonic()
            if round_ % 2:  # under the manager, which has not noticed
                backend.close()
            it.manager.close()
            assert time.monotonic() - began < 20
            assert backend.manager is None


def test_a_library_that_fails_leaves_the_engine_serving(monkeypatch: pytest.MonkeyPatch,
                                                        caplog: pytest.LogCaptureFixture) -> None:
    from libkvbm.errors import error_of
    with serving(L1_CACHE_ENABLED=1, L2_CACHE_INGESTION_TYPE="ALL") as it:
        it.put(N)
        it.wipe_l1(N)

        def broken(*_: Any, **__: Any) -> Any:
            raise error_of(libkvbm.Status.INTERNAL, "lost")

        monkeypatch.setattr(libkvbm.Manager, "lookup", broken)
        assert it.get(N) == ("NOT_FOUND", 0)
        assert it.put(N, prompt=3).is_ok()  # into L1
        assert it.get(N, prompt=3) == ("OK", N)
        assert caplog.text.count("steps aside") == 1


def test_a_put_that_fails_is_a_status_and_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """AIBrix raises into the engine here where a status has no result()."""
    from libkvbm.errors import error_of
    with serving() as it:

        def full(*_: Any, **__: Any) -> Any:
            raise error_of(libkvbm.Status.NO_ROOM, "everything is held")

        monkeypatch.setattr(libkvbm.aibrix.transfer, "submit_async", full)
        status = it.put(N)
        assert status.is_out_of_memory() and status.result() is status
        monkeypatch.undo()
        assert len(it.manager._allocator) == 0
        assert it.put(N).is_ok() and it.get(N) == ("OK", N)
        assert len(it.manager._allocator) == 0


def test_startup_refuses_in_one_sentence(tmp_path: Any) -> None:
    for given, says in (({"KVBM_MODEL": ""}, "KVBM_MODEL is not set"),
                        ({"KVBM_HOST_CAPACITY": "1KiB"}, "libkvbm could not be started"),
                        ({"KVBM_DISKS": "x"}, "there is no variable AIBRIX_KV_CACHE_OL_KVBM_DISKS"),
                        ({"KVBM_DISK": "/proc/kvbm"}, "libkvbm could not be started")):
        with pytest.raises(Exception, match=says):
            with serving(**given):
                pass
