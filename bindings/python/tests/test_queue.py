"""Completions: polled, awaited, as futures, cancelled, and of queues that go away."""
from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import select
import threading
import time
from typing import Any, Iterator

import pytest

import libkvbm

BLOCK = 4096


@pytest.fixture
def cache(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> Iterator[libkvbm.Cache]:
    kv = bytearray(64 * BLOCK)
    for i in range(64):
        kv[i * BLOCK] = i + 1
    with libkvbm.Cache(manager, ns, 64, tensors=[kv]) as cache:
        yield cache


@pytest.fixture
def keys(ns: libkvbm.Namespace) -> libkvbm.Keys:
    return libkvbm.Keys.chain(ns, range(32), 1)


def test_the_descriptor_is_readable_while_a_completion_waits(context: libkvbm.Context, cache: libkvbm.Cache,
                                                             keys: libkvbm.Keys) -> None:
    with libkvbm.Queue(context, 8) as queue:
        assert select.select([queue], [], [], 0)[0] == []
        operation = cache.store_submit(keys, range(32), queue, user_data={"any": "thing"})
        assert select.select([queue], [], [], 60)[0] == [queue]
        completion, = queue.poll()
        assert completion.user_data == {"any": "thing"} and completion.operation == operation.number
        assert completion.item_status is not None and list(completion.item_status) == [0] * 32
        assert queue.poll() == [] and queue.wait(1000) == []
        with pytest.raises(libkvbm.ClosedError):
            operation.cancel()


def test_a_full_queue_has_no_room(context: libkvbm.Context, cache: libkvbm.Cache, keys: libkvbm.Keys) -> None:
    with libkvbm.Queue(context, 1) as queue:
        cache.store_submit(keys, range(32), queue)
        with pytest.raises(libkvbm.NoRoomError):
            cache.store_submit(keys, range(32), queue)
        assert len(queue.wait()) == 1
        cache.store_submit(keys, range(32), queue)


def test_asyncio_stores_and_loads(cache: libkvbm.Cache, keys: libkvbm.Keys) -> None:
    async def run() -> None:
        done = await asyncio.gather(*[cache.store_async(keys[i:i + 1], [i], unchained=True) for i in range(32)])
        assert sum(completion.items_done for completion in done) == 32
        with cache.lookup(keys) as match:
            assert match.hits == 32
            loaded = await cache.load_async(match, range(32, 64))
            assert loaded.check().items_done == 32
        await cache.manager.prefetch_async(cache.ns, keys)
        with pytest.raises(libkvbm.CallerError):
            await cache.manager.offload_async(cache.ns, keys, 7)

    asyncio.run(run())
    asyncio.run(run())  # another loop, the same queue


def test_an_error_of_an_operation_is_raised_with_its_items(cache: libkvbm.Cache, keys: libkvbm.Keys) -> None:
    cache.store(keys, range(32))
    match = cache.lookup(keys)
    cache.manager.drop(cache.ns, keys)

    async def run() -> libkvbm.Completion:
        return await cache.load_async(match, range(32), timeout_ns=0)

    try:
        completion = asyncio.run(run())
        assert completion.status in (libkvbm.Status.OK, libkvbm.Status.PARTIAL)
    except libkvbm.KvbmError as error:
        assert error.item_status is not None and len(error.item_status) == 32


def test_a_cancelled_await_cancels_the_operation(cache: libkvbm.Cache, keys: libkvbm.Keys) -> None:
    async def run() -> None:
        future = cache.store_async(keys, range(32))
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        await asyncio.sleep(0)
        assert (await cache.store_async(keys, range(32))).status == libkvbm.Status.OK

    asyncio.run(run())
    cache.manager.queue().close()


def test_a_loop_that_was_closed_before_the_completion(cache: libkvbm.Cache, keys: libkvbm.Keys) -> None:
    loop = asyncio.new_event_loop()

    async def run() -> None:
        cache.store_async(keys, range(32))

    loop.run_until_complete(run())
    loop.close()
    assert cache.store_future(keys, range(32)).result(60).status == libkvbm.Status.OK


def test_plain_futures_from_many_threads(cache: libkvbm.Cache, keys: libkvbm.Keys) -> None:
    def work(i: int) -> int:
        return cache.store_future(keys[i:i + 1], [i], unchained=True).result(60).items_done

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(32))) == 32
    future = cache.manager.prefetch_future(cache.ns, keys)
    assert future.result(60).items == 32


def test_futures_and_asyncio_and_polling_share_a_queue(context: libkvbm.Context, cache: libkvbm.Cache,
                                                       keys: libkvbm.Keys) -> None:
    with libkvbm.Queue(context, 64) as queue:
        async def run() -> None:
            awaited = cache.store_async(keys, range(32), queue=queue)
            plain = cache.store_future(keys, range(32), queue=queue)
            cache.store_submit(keys, range(32), queue, user_data="mine")
            await awaited
            assert (await asyncio.wrap_future(plain)).status == libkvbm.Status.OK

        asyncio.run(run())
        completion, = queue.wait(60_000_000_000)
        assert completion.user_data == "mine"


def test_events_are_told(context: libkvbm.Context, manager: libkvbm.Manager, cache: libkvbm.Cache,
                         keys: libkvbm.Keys) -> None:
    with libkvbm.Queue(context, 8) as queue:
        manager.subscribe(queue)

        async def run() -> None:
            await cache.store_async(keys, range(32), queue=queue)
            await asyncio.sleep(0)

        asyncio.run(run())
        events: list[libkvbm.Event] = []
        while len(events) < 32:
            events += queue.poll_events()
        manager.subscribe(None)
    assert [event.sequence for event in events] == list(range(1, 33))
    assert {event.key for event in events} == set(keys) and events[0].kind == libkvbm.EventKind.STORED
    assert events[0].namespace_id == cache.ns.id


def test_a_queue_that_is_closed_with_operations_in_flight(context: libkvbm.Context, cache: libkvbm.Cache,
                                                          keys: libkvbm.Keys) -> None:
    for _ in range(20):
        queue = libkvbm.Queue(context, 8)
        future = cache.store_future(keys, range(32), queue=queue)
        cache.store_submit(keys, range(32), queue)
        queue.close()
        queue.close()
        try:
            assert future.result(60).status == libkvbm.Status.OK
        except libkvbm.PeerError as error:
            assert error.status == libkvbm.Status.CANCELLED
        cache.manager.drop(cache.ns, keys)


def test_a_queue_that_is_forgotten_with_operations_in_flight(context: libkvbm.Context, cache: libkvbm.Cache,
                                                             keys: libkvbm.Keys) -> None:
    for _ in range(20):
        cache.store_submit(keys, range(32), libkvbm.Queue(context, 8))
        gc.collect()
        cache.manager.drop(cache.ns, keys)
    while cache.manager.stats().operations_in_flight:
        pass


def test_memory_of_an_operation_is_kept_until_it_has_completed(context: libkvbm.Context, manager: libkvbm.Manager,
                                                               ns: libkvbm.Namespace) -> None:
    keys = libkvbm.Keys.chain(ns, range(64), 1)
    with libkvbm.Queue(context, 64) as queue:
        for _ in range(20):
            # The tensor, the cache, the statuses and the match: all forgotten at once.
            kv = bytearray(b"\x05" * 64 * BLOCK)
            libkvbm.Cache(manager, ns, 64, tensors=[kv]).store_submit(keys, range(64), queue)
            del kv
            gc.collect()
            completion, = queue.wait()
            assert completion.status == libkvbm.Status.OK
            with manager.lookup(ns, keys) as match, match.blocks() as blocks:
                assert all(bytes(view) == b"\x05" * BLOCK for view in blocks.views())
            del blocks, match
            manager.drop(ns, keys)


def test_every_completion_comes_once_to_one_of_many_pollers(context: libkvbm.Context, cache: libkvbm.Cache,
                                                            keys: libkvbm.Keys) -> None:
    seen: list[int] = []
    with libkvbm.Queue(context, 512) as queue:
        def poll() -> None:
            while len(seen) < 200:
                seen.extend(completion.user_data for completion in queue.wait(1_000_000))

        threads = [threading.Thread(target=poll) for _ in range(3)]
        for thread in threads:
            thread.start()
        futures = []
        for i in range(200):
            cache.store_submit(keys[i % 32:i % 32 + 1], [i % 32], queue, user_data=i, unchained=True)
            if i % 10 == 0:
                futures.append(cache.store_future(keys, range(32), queue=queue))
        assert all(future.result(60).status == libkvbm.Status.OK for future in futures)
        for thread in threads:
            thread.join()
    assert sorted(seen) == list(range(200))


def test_a_wait_lets_other_threads_run(context: libkvbm.Context, cache: libkvbm.Cache, keys: libkvbm.Keys) -> None:
    with libkvbm.Queue(context, 1) as queue:
        started, ended = threading.Event(), []

        def wait() -> None:
            started.set()
            ended.append(queue.wait(20_000_000_000))

        thread = threading.Thread(target=wait)
        thread.start()
        started.wait()
        for _ in range(1000):
            time.sleep(0)  # the other thread gets to its wait, and this one comes back from here in spite of it
        cache.store_submit(keys, range(32), queue, user_data="mine")
        thread.join()
    assert [[completion.user_data for completion in found] for found in ended] == [["mine"]]


def test_closing_in_one_thread_what_another_waits_for(context: libkvbm.Context) -> None:
    queue = libkvbm.Queue(context, 1)
    seen: list[Any] = []

    def wait() -> None:
        try:
            seen.append(queue.wait())
        except libkvbm.ClosedError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    queue.close()
    thread.join(60)
    assert not thread.is_alive() and isinstance(seen[0], libkvbm.ClosedError)
