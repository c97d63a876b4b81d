"""Events as bytes, and the treatment of invalid bytes."""
from __future__ import annotations

import random
import struct
from typing import Any

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq msgspec")
msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")

from libkvbm.events import (ANY, AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event, Group, Index,  # noqa: E402
                            Prefix, Subscriber, decode, encode, sglang_hash, vllm_hash)

FULL = BlockStored([1, 1 << 63], 5, [1, 2, 3, 4], 2, 7, "CPU", "adapter", [["salt"], None], 0, "full_attention", 64,
                   "LOCAL", "kvbm", "session", [9], None)
EVENTS: list[Event] = [FULL, BlockStored([b"d" * 32], None, [], 0), BlockRemoved([3], "STORAGE", 1, "REMOTE", "x"),
                       AllBlocksCleared()]


def unpacked(batch: Batch, **options: str) -> Any:
    return msgspec.msgpack.decode(encode(batch, **options))


def test_maps_have_what_vllm_says_and_always_what_has_no_default() -> None:
    ts, events, rank = unpacked(Batch(1.5, EVENTS, 3))
    assert (ts, rank) == (1.5, 3)
    assert events[0]["type"] == "BlockStored" and events[0]["lookahead_token_ids"] == [9]
    assert events[1] == {"type": "BlockStored", "block_hashes": [b"d" * 32], "parent_block_hash": None, "token_ids": [],
                         "block_size": 0, "lora_id": None, "medium": None, "lora_name": None}
    assert events[2] == {"type": "BlockRemoved", "block_hashes": [3], "medium": "STORAGE", "group_idx": 1,
                         "locality": "REMOTE", "ownership": "x"}
    assert events[3] == {"type": "AllBlocksCleared"}


def test_arrays_are_what_vllm_0_22_sent() -> None:
    # Seen from vLLM 0.22's own encoder.
    events: list[Event] = [BlockStored([1, 2], 5, [1, 2, 3, 4], 2, 7, "CPU", "ad", [["salt"], None], 0,
                                       "full_attention", 64, "LOCAL"),
                           BlockStored([1]), BlockRemoved([3], "STORAGE", locality="LOCAL"), AllBlocksCleared()]
    assert unpacked(Batch(1.5, events), encoding="array") == [1.5, [
        ["BlockStored", [1, 2], 5, [1, 2, 3, 4], 2, 7, "CPU", "ad", [["salt"], None], 0, "full_attention", 64],
        ["BlockStored", [1], None, [], 0, None, None, None, None, None, None, None],
        ["BlockRemoved", [3], "STORAGE", None], ["AllBlocksCleared"]], None]


def test_sglang_has_its_own_fields() -> None:
    event = BlockStored([-4], -9, [1], 1, None, "DISK", "a", cache_salt="salt", session_id="s", group_idx=1)
    assert unpacked(Batch(2.0, [event, BlockRemoved([-4])]), variant="sglang") == [2.0, [
        {"type": "BlockStored", "block_hashes": [-4], "parent_block_hash": -9, "token_ids": [1], "block_size": 1,
         "lora_id": None, "medium": "DISK", "cache_salt": "salt", "session_id": "s", "lora_name": "a"},
        {"type": "BlockRemoved", "block_hashes": [-4]}], None]


@pytest.mark.parametrize("encoding", ["map", "array"])
def test_both_encodings_come_back(encoding: str) -> None:
    plain: list[Event] = [BlockStored([1], 2, [3], 1, None, "GPU", "l", [["x", 1]], 2, "mamba", 8),
                          BlockRemoved([1], "CPU"), AllBlocksCleared()]
    result = decode(encode(Batch(3.0, plain, 1), encoding=encoding))
    assert result.batch == Batch(3.0, plain, 1) and result.malformed == result.unknown == 0


def test_hashes_become_the_numbers_of_each_engine() -> None:
    digest = bytes(range(0xe0, 0x100))
    assert vllm_hash(digest) == 0xf8f9fafbfcfdfeff
    assert sglang_hash(digest) == 0xe0e1e2e3e4e5e6e7 - (1 << 64) == sglang_hash(digest.hex())


@pytest.mark.parametrize("event", [
    None, 7, [], {}, {"type": 5}, {"type": "BlockStored"}, {"type": "BlockStored", "block_hashes": 5},
    {"type": "BlockStored", "block_hashes": [None]}, {"type": "BlockStored", "block_hashes": [True]},
    {"type": "BlockStored", "block_hashes": [b""]}, {"type": "BlockStored", "block_hashes": [b"x" * 65]},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": [-1]},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": [[1, 2, 3]]},
    {"type": "BlockStored", "block_hashes": [1], "block_size": -1},
    {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": "x"},
    {"type": "BlockStored", "block_hashes": [1], "medium": 5},
    {"type": "BlockStored", "block_hashes": [1], "medium": "x" * 5000},
    {"type": "BlockStored", "block_hashes": [1], "extra_keys": [5]},
    {"type": "BlockStored", "block_hashes": [1], "lookahead_token_ids": "x"},
    {"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1.5},
    {"type": "BlockRemoved", "block_hashes": [1], "group_idx": -1},
    {"type": "BlockStored", "block_hashes": [1], "group_idx": 1 << 31},
    {"type": "BlockStored", "block_hashes": [1], "group_idx": True},
    {"type": "BlockStored", "block_hashes": [1], "block_size": 1 << 31},
    {"type": "BlockStored", "block_hashes": [1], "block_size": 16.0},
    {"type": "BlockStored", "block_hashes": [1], "kv_cache_spec_kind": 7},
    {"type": "BlockStored", "block_hashes": [1], "kv_cache_spec_sliding_window": -1},
    {"type": "BlockStored", "block_hashes": [1], "kv_cache_spec_sliding_window": (1 << 64) - 1},
    {"type": "BlockStored", "block_hashes": [1], "lora_id": (1 << 64) - 1},
    {"type": "BlockStored", "block_hashes": [1], "lora_name": ["x"]}, ["BlockStored"], ["BlockRemoved", "x"], [["x"]]])
def test_an_event_that_is_wrong_is_left_out_and_the_rest_stays(event: Any) -> None:
    good = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}
    result = decode(msgspec.msgpack.encode([1.0, [good, event, good]]))
    assert result.malformed == 1 and result.batch is not None and len(result.batch.events) == 2


def test_kinds_that_are_not_known_are_counted_and_later_fields_ignored() -> None:
    result = decode(msgspec.msgpack.encode([1.0, [
        {"type": "BlockMoved", "x": 1}, ["BlockMoved", 5], {"type": "AllBlocksCleared", "why": 1},
        {"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU", "later": {}}, ["BlockRemoved", [2]]], 0, "later"]))
    assert (result.unknown, result.malformed) == (2, 0)
    assert result.batch is not None
    assert result.batch.events == [AllBlocksCleared(), BlockRemoved([1], "CPU"), BlockRemoved([2])]


@pytest.mark.parametrize("payload", [
    b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 100_000,
    b"\x93", b"\x92\xcb", msgspec.msgpack.encode(7), msgspec.msgpack.encode([1.0]),
    msgspec.msgpack.encode(["x", []]), msgspec.msgpack.encode([1.0, {}]), msgspec.msgpack.encode([1.0, [], "rank"]),
    msgspec.msgpack.encode([1.0, []]) + b"\x00", b"\x92\xcb" + struct.pack(">d", 1.0) + b"\xdd\x7f\xff\xff\xff"])
def test_payloads_that_are_none_are_counted(payload: bytes) -> None:
    result = decode(payload)
    assert result.batch is None and result.malformed == 1 and result.why


def test_a_bigram_of_sglang_is_a_pair() -> None:
    result = decode(msgspec.msgpack.encode([1.0, [{"type": "BlockStored", "block_hashes": [1],
                                                   "token_ids": [[1, 2], [2, 3]], "block_size": 2}], None]))
    assert result.batch is not None
    event = result.batch.events[0]
    assert isinstance(event, BlockStored) and event.token_ids == [(1, 2), (2, 3)]


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 4 else 7)
    if kind == 7:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind == 8:
        names = ["type", "block_hashes", "token_ids", "medium", "group_idx", "extra_keys", "x"]
        return {rng.choice(names): random_value(rng, depth + 1) for _ in range(rng.randrange(6))}
    return [None, True, rng.randrange(-1 << 63, 1 << 64), rng.random(), rng.randbytes(rng.randrange(70)), "é" * 3,
            rng.choice(["BlockStored", "BlockRemoved", "AllBlocksCleared"])][kind]


def test_whatever_the_bytes_are_the_decoder_and_the_index_go_on() -> None:
    seed = 20260
    rng = random.Random(seed)
    index = Index(limit=500)
    samples = [encode(Batch(1.0, EVENTS, 1), encoding=encoding) for encoding in ("map", "array")]
    for turn in range(20_000):
        if turn % 3:
            data = bytearray(samples[turn % 2])
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            payload = bytes(data[:rng.randrange(len(data) + 1)] if turn % 7 == 0 else data)
        else:
            payload = msgspec.msgpack.encode([1.0, [random_value(rng) for _ in range(3)], None])
        result = decode(payload)
        if result.batch is None:
            assert result.malformed == 1, (seed, turn)
            continue
        # Decoded events can be encoded again, with the same meaning.
        again = decode(encode(Batch(1.0, result.batch.events, result.batch.rank)))
        assert again.malformed == 0 and again.batch is not None, (seed, turn)
        assert len(again.batch.events) == len(result.batch.events), (seed, turn)
        index.apply(f"source {turn % 5}", result.batch.events)
        assert len(index) <= 500, (seed, turn)


def random_event(rng: random.Random) -> Any:
    """As engines send them, with one thing wrong in it now and then."""
    row: dict[str, Any] = {
        "type": rng.choice(["BlockStored"] * 6 + ["BlockRemoved"] * 3 + ["AllBlocksCleared"]),
        "block_hashes": [rng.randrange(12) for _ in range(rng.randrange(5))], "token_ids": [],
        "block_size": rng.choice([0, 1, 16, 32, 48, (1 << 31) - 1]), "group_idx": rng.choice([None, 0, 1, 2, 300]),
        "kv_cache_spec_kind": rng.choice([None, "full_attention", "sliding_window", "mamba", "chunked_local_attention",
                                          "unknown", "of a later version"]),
        "kv_cache_spec_sliding_window": rng.choice([None, 0, 1, 33, (1 << 31) - 1]),
        "lora_id": rng.choice([None, None, 0, 1]), "lora_name": rng.choice([None, None, "a", ""]),
        "medium": rng.choice([None, "CPU", "", "x" * rng.randrange(40)]), "of_a_later_version": [{}]}
    if rng.random() < 0.3:
        row[rng.choice(sorted(row))] = random_value(rng)
    if rng.random() < 0.1:
        del row[rng.choice(sorted(row))]
    return row


def test_whatever_engines_say_of_their_groups_the_index_answers_and_gives_all_back() -> None:
    seed = 20261
    rng = random.Random(seed)
    index = Index(limit=60)
    taken = left_out = 0
    for turn in range(6_000):
        result = decode(msgspec.msgpack.encode([1.0, [random_event(rng) for _ in range(3)], None]))
        assert result.batch is not None and result.malformed + result.unknown + len(result.batch.events) == 3, turn
        taken, left_out = taken + len(result.batch.events), left_out + result.malformed
        index.apply(f"source {turn % 5}", result.batch.events)
        assert len(index) == sum(index.sources().values()) <= 60, (seed, turn)
        hashes = [rng.randrange(12) for _ in range(rng.randrange(9))]
        more: dict[str, Any] = {
            "group": rng.choice([None, None, 0, 1, -1]), "tokens": rng.choice([None, 0, 1, 100, 1 << 70]),
            "block_size": rng.choice([None, None, 1, 16, 17]), "eagle": rng.choice([False, True, [1], ()]),
            "groups": rng.choice([None, None, {}, {0: Group("sliding_window")}, {1: Group("mamba", 16), 2: Group()},
                                  {0: Group("chunked_local_attention", 16, 5)}]),
            "lora": rng.choice([ANY, ANY, None, "a", 1])}
        for one in index.longest_prefix(hashes, **more):
            assert 0 < one.blocks <= len(hashes), (seed, turn, more)
    assert taken > 10_000 and left_out > 1000
    for turn in range(5):
        index.apply(f"source {turn}", [AllBlocksCleared()])
    assert len(index) == len(index._variants) == 0 and index.sources() == {} and index.forgotten > 100


def test_messages_that_are_none_do_not_end_the_loop() -> None:
    import zmq

    rng = random.Random(77)
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        socket.linger = 0
        with Subscriber(f"tcp://127.0.0.1:{port}", context=context, from_start=False) as subscriber:
            good = encode(Batch(1.0, [AllBlocksCleared()]))
            while subscriber.receive(0.05) is None:
                socket.send_multipart([b"", bytes(8), good])
            rounds = 400
            for _ in range(rounds):
                socket.send_multipart([rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(1, 5))])
            socket.send_multipart([b"end", bytes(8), good])
            last = None
            while (received := subscriber.receive(5)) is not None and received.stream != "end":
                last = received
            assert received is not None, last
            assert subscriber.counts.malformed >= rounds


# ---- the index


def test_the_longest_prefix_is_told_for_each_source_and_medium() -> None:
    index = Index()
    index.apply("a", [BlockStored([1, 2, 3], medium="GPU"), BlockStored([1, 2, 3, 4], medium="CPU")])
    index.apply("b", [BlockStored([1, 3], medium=None), BlockStored([2], medium="STORAGE")])
    index.apply("c", [BlockStored([2, 3], medium="GPU")])
    assert index.longest_prefix([1, 2, 3, 4, 5]) == [
        Prefix("a", None, 4), Prefix("a", "CPU", 4), Prefix("a", "GPU", 3), Prefix("b", None, 3), Prefix("b", "GPU", 1)]
    index.apply("a", [BlockRemoved([2], "CPU"), BlockRemoved([1], "NEVER SEEN")])
    assert index.longest_prefix([1, 2, 3, 4]) == [
        Prefix("a", None, 4), Prefix("a", "GPU", 3), Prefix("b", None, 3), Prefix("a", "CPU", 1), Prefix("b", "GPU", 1)]
    index.apply("a", [AllBlocksCleared()])
    assert index.sources() == {"b": 3, "c": 2} and len(index) == 5
    assert index.mediums("b", 2) == {"STORAGE"} and index.mediums("nobody", 2) == set()
    assert index.longest_prefix([]) == index.longest_prefix([1], group=1) == []


def test_the_index_stays_within_its_limit_and_forgets_the_oldest_of_the_largest() -> None:
    index = Index(limit=10)
    index.apply("small", [BlockStored([1, 2])])
    index.apply("large", [BlockStored(list(range(100)))])
    assert len(index) == 10 and index.sources() == {"small": 2, "large": 8} and index.forgotten == 92
    assert index.longest_prefix([99]) == [Prefix("large", None, 1), Prefix("large", "GPU", 1)]
