"""libkvbm's events against vLLM's own decoder and publisher, and its subscriber against vLLM's publisher."""
from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq msgspec")
msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")
kv_events = pytest.importorskip("vllm.distributed.kv_events", reason="vLLM is not installed", exc_type=ImportError)

import zmq  # noqa: E402

from libkvbm.events import (AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event, Publisher,  # noqa: E402
                            Received, Subscriber, decode, encode)
from libkvbm.events import endpoint as endpoints  # noqa: E402

PATIENCE = 20.0
OURS: list[Event] = [
    BlockStored([1, (1 << 64) - 1], 5, [1, 2, 3, 4], 2, 7, "CPU", "adapter", [["salt"], None], 0, "full_attention", 64,
                "LOCAL", "kvbm", "session"),
    BlockStored([b"d" * 32], None, [], 0, medium="STORAGE"), BlockRemoved([3], "STORAGE", 1, "REMOTE", "x"),
    BlockRemoved([3], None), AllBlocksCleared()]


def theirs() -> Any:
    return kv_events.KVEventBatch(ts=1.5, data_parallel_rank=2, events=[
        kv_events.BlockStored([1, (1 << 64) - 1], 5, [1, 2, 3, 4], 2, 7, "CPU", "adapter", [("salt",), None], 0,
                              "full_attention", 64, "LOCAL", "kvbm", "session"),
        kv_events.BlockStored([b"d" * 32], None, [], 0, None, "STORAGE", None),
        kv_events.BlockRemoved([3], "STORAGE", 1, "REMOTE", "x"), kv_events.BlockRemoved([3], None),
        kv_events.AllBlocksCleared()])


def test_vllm_decodes_what_we_encode_and_the_other_way_round() -> None:
    decoder = msgspec.msgpack.Decoder(kv_events.KVEventBatch)
    assert decoder.decode(encode(Batch(1.5, OURS, 2))) == theirs()
    result = decode(msgspec.msgpack.encode(theirs()))
    assert result.batch == Batch(1.5, OURS, 2) and result.malformed == 0


def test_the_bytes_are_vllms_but_for_the_order_of_fields_in_a_map() -> None:
    assert msgspec.msgpack.decode(encode(Batch(1.5, OURS, 2))) == msgspec.msgpack.decode(
        msgspec.msgpack.encode(theirs()))
    none = kv_events.KVEventBatch(ts=1.5, events=[])
    assert encode(Batch(1.5, [])) == msgspec.msgpack.encode(none)


@pytest.mark.parametrize("endpoint", ["tcp://*:5557", "tcp://127.0.0.1:5557", "tcp://host:1", "tcp://[::]:1", "ipc:///x",
                                      "inproc://x"])
def test_endpoints_are_read_as_vllm_reads_them(endpoint: str) -> None:
    theirs = kv_events.ZmqEventPublisher
    assert endpoints.binds(endpoint) == theirs._is_bind_endpoint(endpoint)
    if not endpoint.startswith("ipc"):
        assert endpoints.of_rank(endpoint, 3) == theirs.offset_endpoint_port(endpoint, 3)


def free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        return int(socket.bind_to_random_port("tcp://127.0.0.1"))


def test_our_subscriber_hears_and_replays_vllms_publisher() -> None:
    # vLLM binds no system-chosen port of loopback: it connects to ours, and its replay socket gets a free one.
    replay = f"tcp://127.0.0.1:{free_port()}"
    with Subscriber("tcp://127.0.0.1:*", replay_endpoint=replay, topic="kv@") as subscriber:
        publisher = kv_events.ZmqEventPublisher(0, subscriber.endpoint, replay, topic="kv@pod@model")
        try:
            heard: list[Received] = []
            end = time.monotonic() + PATIENCE
            n = 0
            while not heard and time.monotonic() < end:
                batch = theirs()
                batch.ts, batch.data_parallel_rank = float(n), None
                publisher.publish(batch)
                n += 1
                if (one := subscriber.receive(0.05)) is not None:
                    heard.append(one)
            while len(heard) < n and time.monotonic() < end:
                if (one := subscriber.receive(0.5)) is not None:
                    heard.append(one)
            assert [one.seq for one in heard] == list(range(n)) == [int(one.ts) for one in heard]
            assert all(one.events == OURS and one.lost == 0 for one in heard)
            assert heard[0].stream == "kv@pod@model/0"
        finally:
            publisher.shutdown()


def receive(socket: Any) -> list[bytes]:
    assert socket.poll(PATIENCE * 1000)
    frames: list[bytes] = socket.recv_multipart()
    return frames


def test_a_reader_made_as_vllm_documents_it_hears_and_replays_our_publisher() -> None:
    decoder = msgspec.msgpack.Decoder(kv_events.KVEventBatch)
    with Publisher("tcp://127.0.0.1:*", replay_endpoint="tcp://127.0.0.1:*", topic="kv", rank=0) as publisher, \
            zmq.Context() as context, context.socket(zmq.SUB) as sub, context.socket(zmq.DEALER) as dealer:
        sub.connect(publisher.endpoint)
        sub.subscribe("kv")
        dealer.linger = sub.linger = 0
        dealer.connect(publisher.replay_endpoint)
        publisher.publish(OURS, ts=1.5)
        while not sub.poll(50):
            publisher.publish(OURS, ts=1.5)
        publisher.publish(OURS, ts=1.5)  # the replay has more than one, also where none was missed
        topic, seq, payload = sub.recv_multipart()
        assert topic == b"kv" and len(seq) == 8
        expected = theirs()
        expected.data_parallel_rank = 0
        assert decoder.decode(payload) == expected
        dealer.send_multipart([b"", (1).to_bytes(8, "big")])
        numbers = []
        while (frames := receive(dealer))[2] != kv_events.ZmqEventPublisher.END_SEQ:
            assert frames[:2] == [b"", b"kv"] and decoder.decode(frames[3]) == expected
            numbers.append(int.from_bytes(frames[2], "big"))
        assert numbers == list(range(1, len(numbers) + 1)) and numbers
        assert frames == [b"", b"", b"\xff" * 8, b""]
