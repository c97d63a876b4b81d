"""Events over real sockets of this host: published and read, missed and replayed, and sent by a manager."""
from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq msgspec")
pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")

import zmq  # noqa: E402

import libkvbm  # noqa: E402
from libkvbm.engine import ConfigurationError  # noqa: E402
from libkvbm.events import (AllBlocksCleared, BlockRemoved, BlockStored, EventSource, Index, Prefix, Publisher,  # noqa: E402
                            Received, Subscriber, open_source, sglang_hash, vllm_hash)

ANY_PORT = "tcp://127.0.0.1:*"
PATIENCE = 20.0


def stored(*hashes: int, **more: Any) -> BlockStored:
    return BlockStored(list(hashes), None, [7] * 2 * len(hashes), 2, **more)


def hear(subscriber: Subscriber, n: int) -> list[Received]:
    """The next n messages."""
    got: list[Received] = []
    end = time.monotonic() + PATIENCE
    while len(got) < n and time.monotonic() < end:
        received = subscriber.receive(0.5)
        if received is not None:
            got.append(received)
    assert len(got) == n
    return got


def greet(publisher: Publisher, subscriber: Subscriber) -> Received:
    """Publishes until the subscriber hears: a subscription takes a moment to arrive."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        publisher.publish([])
        received = subscriber.receive(0.05)
        if received is not None:
            return received
    raise AssertionError("nothing was heard")


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(ANY_PORT, replay_endpoint=ANY_PORT, topic="kv@pod@model", buffer_steps=10_000) as publisher:
        yield publisher


def test_what_was_published_before_a_reader_came_is_replayed_in_order(publisher: Publisher) -> None:
    for n in range(20):
        publisher.publish([stored(n)])
    until(lambda: publisher.counts.published == 20)
    with Subscriber(publisher.endpoint, replay_endpoint=publisher.replay_endpoint, topic="kv@") as subscriber:
        heard = [greet(publisher, subscriber)]
        heard += hear(subscriber, heard[0].seq + 20 if heard[0].seq else 20)
        numbers = [one.seq for one in heard]
        assert numbers == list(range(len(numbers)))
        assert [one.events for one in heard[:20]] == [[stored(n)] for n in range(20)]
        assert all(one.replayed for one in heard[:20]) and sum(one.lost for one in heard) == 0
        assert subscriber.counts.recovered >= 20 and subscriber.counts.gaps == 1


def test_what_the_ring_no_longer_has_is_said_to_be_lost() -> None:
    with Publisher(ANY_PORT, replay_endpoint=ANY_PORT, buffer_steps=5) as publisher:
        for n in range(20):
            publisher.publish([stored(n)])
        until(lambda: publisher.counts.published == 20)
        with Subscriber(publisher.endpoint, replay_endpoint=publisher.replay_endpoint) as subscriber:
            first = greet(publisher, subscriber)
            assert first.lost >= 15 and first.replayed
            assert subscriber.counts.lost == first.lost


def test_without_a_replay_socket_a_gap_is_lost(publisher: Publisher) -> None:
    publisher.publish([stored(1)])
    until(lambda: publisher.counts.published == 1)
    with Subscriber(publisher.endpoint) as subscriber:
        first = greet(publisher, subscriber)
        assert first.lost == first.seq > 0 and subscriber.counts.recovered == 0


def test_a_full_queue_drops_and_the_sequence_shows_it() -> None:
    with Publisher(ANY_PORT, replay_endpoint=ANY_PORT, max_queue_size=1) as publisher:
        taken = sum(publisher.publish([stored(n)]) for n in range(5000))
        until(lambda: publisher.counts.published == taken)
        assert publisher.counts.dropped == 5000 - taken > 0
        assert publisher.next_sequence == 5000
        with Subscriber(publisher.endpoint, replay_endpoint=publisher.replay_endpoint) as subscriber:
            greet(publisher, subscriber)
            until(lambda: subscriber.receive(0.05) is None)
            assert subscriber.counts.lost == 5000 - taken


def test_an_event_that_cannot_be_packed_is_a_gap_and_no_more(publisher: Publisher) -> None:
    publisher.publish([stored(1, medium=object())])
    publisher.publish([stored(2)])
    until(lambda: publisher.counts.published == 1)
    assert publisher.counts.failed == 1
    with Subscriber(publisher.endpoint, replay_endpoint=publisher.replay_endpoint) as subscriber:
        first = greet(publisher, subscriber)
        assert first.seq == 1 and first.lost == 1 and first.events == [stored(2)]


def test_a_publisher_that_begins_anew_is_noticed() -> None:
    context = zmq.Context()
    with Subscriber(ANY_PORT, context=context, from_start=False) as subscriber:
        seen: list[Received] = []
        for _ in range(2):
            with Publisher(subscriber.endpoint, topic="pod") as publisher:
                seen.append(greet(publisher, subscriber))
                publisher.publish([stored(1)])
                until(lambda: (one := subscriber.receive(0.5)) is not None and bool(one.events))
        assert [one.restarted for one in seen] == [False, True] and subscriber.counts.restarts == 1
    context.term()


def test_replay_requests_that_are_wrong_are_refused_and_others_served(publisher: Publisher) -> None:
    publisher.publish([stored(1)])
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(publisher.replay_endpoint)
        dealer.linger = 0
        for frames in ([b"x"], [b"", b"123"], [b"", b"", b""], [b"q", bytes(8)]):
            dealer.send_multipart(frames)
        until(lambda: publisher.counts.refused == 4)
        dealer.send_multipart([b"", b"\xff" * 8])
        assert dealer.poll(PATIENCE * 1000) and dealer.recv_multipart() == [b"", b"", b"\xff" * 8, b""]


def test_closing_sends_what_is_queued_and_twice_is_fine() -> None:
    publisher = Publisher(ANY_PORT)
    with Subscriber(publisher.endpoint) as subscriber:
        greet(publisher, subscriber)
        for n in range(500):
            publisher.publish([stored(n)])
        publisher.close(timeout=PATIENCE)
        publisher.close()
        assert not publisher.publish([])
        heard = [one for one in iter(lambda: subscriber.receive(0.5), None) if one.events]
        assert [one.events for one in heard] == [[stored(n)] for n in range(500)]


@pytest.mark.parametrize("scheme", ["ipc", "inproc"])
def test_a_reader_of_this_host_needs_no_port(scheme: str, tmp_path: Any) -> None:
    where = [f"{scheme}://{tmp_path}/{name}" for name in ("e", "r")]
    with zmq.Context() as context, Publisher(where[0], replay_endpoint=where[1], context=context) as publisher:
        publisher.publish([stored(1)])
        with Subscriber(where[0], replay_endpoint=where[1], context=context) as subscriber:
            first = greet(publisher, subscriber)
            assert first.seq == 0 and first.events == [stored(1)]


@pytest.mark.parametrize("arguments", [
    {"endpoint": "127.0.0.1:5557"}, {"endpoint": "tcp://127.0.0.1"}, {"endpoint": "tcp://127.0.0.1:70000"},
    {"encoding": "json"}, {"encoding": "array", "variant": "sglang"}, {"buffer_steps": -1}, {"max_queue_size": 0},
    {"endpoint": "ipc:///tmp/x", "rank": 1}, {"endpoint": "tcp://*:65535", "rank": 1}, {"variant": "trt"}])
def test_impossible_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Publisher(**arguments)


def test_a_port_in_use_is_said(publisher: Publisher) -> None:
    with pytest.raises(ConfigurationError, match="cannot be listened on"):
        Publisher(publisher.endpoint, bind=True)


# ---- what a manager tells


BLOCK = 4096
TOKENS = list(range(8 * 4))


def hashes_of(n: int) -> list[bytes]:
    return [bytes([9] * 24) + (1000 + i).to_bytes(8, "big") for i in range(n)]


def numbers(n: int) -> list[int]:
    return [vllm_hash(digest) for digest in hashes_of(n)]


def described(source: EventSource, ns: libkvbm.Namespace, n: int = 8) -> libkvbm.Keys:
    keys = libkvbm.Keys.from_hashes(ns, hashes_of(n))
    source.describe(ns, keys, hashes_of(n), tokens=TOKENS[:4 * n], block_size=4)
    return keys


def told(source: EventSource, n: int) -> list[Any]:
    events: list[Any] = []

    def enough() -> bool:
        events.extend(source.take())
        return len(events) >= n

    until(enough)
    return events


def store(manager: libkvbm.Manager, ns: libkvbm.Namespace, keys: libkvbm.Keys) -> None:
    with manager.allocate(ns, len(keys)) as blocks:
        for i in range(len(keys)):
            with blocks.view(i) as view:
                view[:] = bytes([i]) * len(view)
        blocks.complete()
        blocks.register(ns, keys)


def test_blocks_are_told_with_hashes_and_tokens_when_stored(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with EventSource(manager) as source:
        keys = described(source, ns)
        assert source.take() == []
        store(manager, ns, keys)
        assert told(source, 1) == [BlockStored(numbers(8), None, TOKENS, 4, medium="CPU")]
        manager.drop(ns, keys[:2])
        assert told(source, 1) == [BlockRemoved(numbers(2), "CPU")]
        manager.reset()
        assert told(source, 1) == [AllBlocksCleared()]


def test_the_order_of_storing_and_describing_does_not_matter(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with EventSource(manager, hashes="bytes") as source:
        store(manager, ns, libkvbm.Keys.from_hashes(ns, hashes_of(3)))
        until(lambda: source.take() == [] and source.counts.undescribed == 3)
        described(source, ns)
        assert told(source, 1) == [BlockStored(list(hashes_of(3)), None, TOKENS[:12], 4, medium="CPU")]


def test_a_stream_that_is_shared_names_each_block_that_went(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with EventSource(manager, whole=False, mediums={0: "MINE"}, ownership="kvbm", locality="LOCAL") as source:
        store(manager, ns, described(source, ns))
        assert told(source, 1) == [BlockStored(numbers(8), None, TOKENS, 4, medium="MINE", ownership="kvbm",
                                               locality="LOCAL")]
        manager.reset()
        assert told(source, 1) == [BlockRemoved(numbers(8), "MINE", None, "LOCAL", "kvbm")]


def test_a_reset_of_another_namespace_takes_nothing_away(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with EventSource(manager) as source, libkvbm.Namespace(manager, "another") as other:
        store(manager, ns, described(source, ns))
        told(source, 1)
        store(manager, other, libkvbm.Keys.from_hashes(other, hashes_of(1)))
        other.reset()
        until(lambda: source.take() == [] and source.counts.undescribed == 0)
        manager.drop(ns, libkvbm.Keys.from_hashes(ns, hashes_of(8)))
        assert told(source, 1) == [BlockRemoved(numbers(8), "CPU")]


def test_a_reset_is_known_from_its_event_alone(manager: libkvbm.Manager, ns: libkvbm.Namespace,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventSource, "restate", lambda source: pytest.fail("it looked"))
    more = [b"of another namespace %d" % i for i in range(3)]
    with EventSource(manager) as source, libkvbm.Namespace(manager, "another") as other:
        store(manager, ns, described(source, ns, 4))
        store(manager, other, libkvbm.Keys.from_hashes(other, more))
        told(source, 1)
        source.describe(other, libkvbm.Keys.from_hashes(other, more), more)
        told(source, 1)
        other.reset()
        assert told(source, 1) == [BlockRemoved([vllm_hash(one) for one in more], "CPU")]
        ns.invalidate()
        assert told(source, 1) == [AllBlocksCleared()]
        store(manager, ns, described(source, ns, 4))
        told(source, 1)
        store(manager, other, libkvbm.Keys.from_hashes(other, more[:1]))
        told(source, 1)
        manager.reset()
        assert told(source, 1) == [AllBlocksCleared()] and source.counts.lost == 0


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_told_adds_up_to_what_is_there(context: libkvbm.Context, tmp_path: Any, whole: bool) -> None:
    """After every step: the index of a router that heard all, beside the manager's scan."""
    rng = random.Random(whole)
    mediums = {0: "HOST", 1: "DISK"}
    tier = libkvbm.Tier(str(tmp_path / "disk"), 64 << 20)
    seen: set[str] = set()
    with libkvbm.Manager(context, block_bytes=BLOCK, host_capacity_bytes=12 * BLOCK, tiers=[tier]) as manager:
        spaces = [libkvbm.Namespace(manager, name) for name in ("one", "two")]
        hashes = [[b"namespace %d, block number %2d" % (space, i) for i in range(12)] for space in range(2)]
        index = Index()
        with EventSource(manager, hashes="bytes", mediums=mediums, whole=whole) as source:
            for turn in range(120):
                at = rng.randrange(2)
                ns, some = spaces[at], rng.sample(hashes[at], rng.randrange(1, 5))
                keys = libkvbm.Keys.from_hashes(ns, some)
                what = rng.choices(("store", "drop", "prefetch", "reset", "invalidate", "all"), (9, 4, 4, 1, 1, 1))[0]
                if what == "store":
                    source.describe(ns, keys, some)
                    store(manager, ns, keys)
                elif what == "drop":
                    manager.drop(ns, keys)
                elif what == "prefetch":
                    manager.prefetch(ns, keys)
                elif what == "reset":
                    ns.reset()
                elif what == "invalidate":
                    ns.invalidate()
                else:
                    manager.reset()
                manager.flush()
                events = source.take()
                seen.update(what for _ in events)
                index.apply("me", events)
                there: dict[bytes, set[str]] = {}
                for row in manager.scan():
                    there.setdefault(row.namespace_id + row.key, set()).add(mediums[row.tier])
                for space, names in zip(spaces, hashes):
                    for one, key in zip(names, libkvbm.Keys.from_hashes(space, names)):
                        assert index.mediums("me", one) == there.get(space.id + key, set()), (turn, what)
            assert source.counts.lost == 0
        assert seen == {"store", "drop", "prefetch", "reset", "invalidate", "all"}
        for space in spaces:
            space.close()


def test_blocks_beyond_the_limit_are_told_to_be_gone(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    with EventSource(manager, limit=5) as source:
        store(manager, ns, described(source, ns, 5))
        told(source, 1)
        more = [b"another hash, number %d" % i for i in range(2)]
        source.describe(ns, libkvbm.Keys.from_hashes(ns, more), more)
        assert told(source, 1) == [BlockRemoved(numbers(2), "CPU")]
        assert source.counts.forgotten == 2 and source.counts.described == 5


def test_tiers_below_have_their_medium_and_what_was_there_before_is_told(context: libkvbm.Context,
                                                                          tmp_path: Any) -> None:
    tier = libkvbm.Tier(str(tmp_path / "disk"), 64 << 20)

    def open_one() -> tuple[libkvbm.Manager, libkvbm.Namespace]:
        manager = libkvbm.Manager(context, block_bytes=BLOCK, host_capacity_bytes=1 << 20, tiers=[tier])
        return manager, libkvbm.Namespace(manager, "test model")

    manager, ns = open_one()
    with manager, ns, EventSource(manager, hashes="sglang") as source:
        keys = described(source, ns)
        store(manager, ns, keys)
        manager.flush()
        names = [sglang_hash(digest) for digest in hashes_of(8)]
        events = told(source, 2)
        assert {event.medium for event in events} == {"CPU_PINNED", "DISK"}
        assert sorted(h for event in events for h in event.block_hashes) == sorted(names * 2)
    manager, ns = open_one()
    with manager, ns, EventSource(manager) as source:
        source.restate()
        assert source.take() == [] and source.counts.undescribed == 8
        described(source, ns)
        assert told(source, 1) == [BlockStored(numbers(8), None, TOKENS, 4, medium="STORAGE")]


def test_a_source_from_a_configuration_reaches_a_router(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    options = {"endpoint": ANY_PORT, "replay_endpoint": ANY_PORT, "topic": "kv@me@model", "mediums": {"0": "CPU"}}
    source = open_source(manager, options)
    assert source is not None and open_source(manager, None) is None
    with source, Subscriber(source.publisher.endpoint, replay_endpoint=source.publisher.replay_endpoint) as subscriber:
        store(manager, ns, described(source, ns))
        until(lambda: source.publisher.counts.published == 1)
        first = greet(source.publisher, subscriber)
        index = Index()
        index.apply(first.stream, first.events)
        assert index.longest_prefix([*numbers(3), 5]) == [Prefix("kv@me@model", None, 3),
                                                          Prefix("kv@me@model", "CPU", 3)]
    for bad in ({}, {"endpoint": ANY_PORT, "topics": "x"}, {"endpoint": ANY_PORT, "mediums": {"host": "CPU"}}):
        with pytest.raises(ConfigurationError):
            open_source(manager, bad)
