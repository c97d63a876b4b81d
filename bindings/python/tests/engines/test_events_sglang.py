"""libkvbm's events against SGLang's own decoder and publisher classes."""
from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import sys
import time
import types
from typing import Any

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq msgspec")
msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed: pip install msgspec")
pytest.importorskip("pydantic", reason="pydantic, which SGLang needs, is not installed")

from libkvbm.events import (SGLANG_MEDIUMS, AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event,  # noqa: E402
                            Received, Subscriber, decode, encode)

OURS: list[Event] = [
    BlockStored([-(1 << 63), 5], None, [1, 2, 3, 4], 2, None, "CPU_PINNED", "adapter", session_id="s",
                cache_salt="salt"),
    BlockStored([6], 5, [], 0, medium="DISK"), BlockRemoved([6], "DISK"), BlockRemoved([6]), AllBlocksCleared()]


def load() -> Any:
    """SGLang's module alone: the package needs a GPU's libraries to be imported."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("SGLang is not installed", allow_module_level=True)
    file = pathlib.Path(spec.submodule_search_locations[0]) / "srt/disaggregation/kv_events.py"
    needed = {"sglang": {}, "sglang.srt": {}, "sglang.srt.runtime_context": {"get_parallel": None},
              "sglang.srt.utils": {}, "sglang.srt.utils.network": {"NetworkAddress": None}}
    before = {name: sys.modules.get(name) for name in needed}
    for name, attributes in needed.items():
        module = types.ModuleType(name)
        module.__dict__.update(attributes, __path__=[])
        sys.modules[name] = module
    try:
        source = importlib.util.spec_from_file_location("sglang_kv_events", file)
        assert source is not None and source.loader is not None
        module = importlib.util.module_from_spec(source)
        sys.modules["sglang_kv_events"] = module
        source.loader.exec_module(module)
        return module
    finally:
        for name, old in before.items():
            sys.modules.pop(name, None)
            if old is not None:
                sys.modules[name] = old


kv_events = load()


def theirs() -> Any:
    return kv_events.KVEventBatch(ts=1.5, attn_dp_rank=2, events=[
        kv_events.BlockStored([-(1 << 63), 5], None, [1, 2, 3, 4], 2, None, kv_events.StorageMedium.CPU, "salt", "s",
                              "adapter"),
        kv_events.BlockStored([6], 5, [], 0, None, kv_events.StorageMedium.DISK),
        kv_events.BlockRemoved([6], kv_events.StorageMedium.DISK), kv_events.BlockRemoved([6]),
        kv_events.AllBlocksCleared()])


def test_sglang_decodes_what_we_encode_and_the_other_way_round() -> None:
    decoder = msgspec.msgpack.Decoder(kv_events.KVEventBatch)
    assert decoder.decode(encode(Batch(1.5, OURS, 2), variant="sglang")) == theirs()
    assert decode(msgspec.msgpack.encode(theirs())).batch == Batch(1.5, OURS, 2)


def test_the_batch_is_sglangs() -> None:
    assert encode(Batch(1.5, []), variant="sglang") == msgspec.msgpack.encode(kv_events.KVEventBatch(1.5, []))
    assert msgspec.msgpack.decode(encode(Batch(1.5, OURS, 2), variant="sglang")) == msgspec.msgpack.decode(
        msgspec.msgpack.encode(theirs()))


def test_mediums_are_sglangs() -> None:
    assert set(SGLANG_MEDIUMS.values()) == {medium.value for medium in kv_events.StorageMedium} - {"GPU"}


def test_our_subscriber_hears_and_replays_sglangs_publisher() -> None:
    with Subscriber("tcp://127.0.0.1:*") as probe:
        free = probe.endpoint
    with Subscriber("tcp://127.0.0.1:*", replay_endpoint=free) as subscriber:
        publisher = kv_events.ZmqEventPublisher(0, endpoint=subscriber.endpoint, replay_endpoint=free, topic="kv")
        with contextlib.closing(types.SimpleNamespace(close=publisher.shutdown)):
            end, n = time.monotonic() + 20, 0
            heard: list[Received] = []
            while (not heard or len(heard) < n) and time.monotonic() < end:
                if not heard:
                    batch = theirs()
                    batch.ts, n = float(n), n + 1
                    publisher.publish(batch)
                if (one := subscriber.receive(0.05)) is not None:
                    heard.append(one)
            assert [int(one.ts) for one in heard] == list(range(n)) and all(one.events == OURS for one in heard)
            assert heard[0].stream == "kv/2"
