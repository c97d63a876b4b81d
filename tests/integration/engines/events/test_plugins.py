"""A real vLLM with libkvbm tells a router what libkvbm keeps: option `events` of each hook."""
from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connector.support import transfer
from engine import RANDOM, Engine, EngineError
from hooks import kv_transfer
from libkvbm.events import AllBlocksCleared, BlockRemoved, BlockStored, Received, Subscriber, vllm_hash

PROMPT = [(7 * i + 3) % 490 + 3 for i in range(330)]


@pytest.fixture
def endpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="kv") as directory:
        yield f"ipc://{directory}/e"


def table(endpoint: str) -> dict[str, Any]:
    return {"endpoint": endpoint, "replay_endpoint": endpoint + "r", "topic": "kv@here@tiny"}


def hear(engine: Engine, subscriber: Subscriber, enough: Any, seconds: float = 40) -> list[Received]:
    """Receives until `enough` is true, with requests in between, so that a late subscription still sees events."""
    received: list[Received] = []
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end and not enough([event for one in received for event in one.events]):
        engine.generate([[400 - turn % 300] * 40], max_tokens=1)
        turn += 1
        received += [one for one in iter(lambda: subscriber.receive(0.3), None)]
    return received


def stored(events: list[Any], medium: str = "CPU") -> list[Any]:
    return [event for event in events if isinstance(event, BlockStored) and event.medium == medium]


def hashes(engine: Engine) -> set[int]:
    """Of the blocks in vLLM's own cache, as it tells them; behind each hash is the number of its group."""
    return {int(vllm_hash(bytes.fromhex(name)[:-4])) for name in engine.kv()}


def test_the_connector_tells_blocks_with_tokens_and_where_they_are(tiny: Path, endpoint: str, tmp_path: Path) -> None:
    extra = transfer(events=table(endpoint), disk=str(tmp_path / "tier"), disk_capacity="64MiB")
    with Engine(tiny, {**RANDOM, **extra}) as engine:
        engine.generate([PROMPT], max_tokens=1)
        known = hashes(engine)
        with Subscriber(endpoint, replay_endpoint=endpoint + "r", topic="kv@") as subscriber:
            def whole(events: list[Any]) -> bool:
                return all(PROMPT[0] in {t for event in stored(events, medium) for t in event.token_ids}
                           and known <= {h for event in stored(events, medium) for h in event.block_hashes}
                           for medium in ("CPU", "STORAGE"))

            events = [event for one in hear(engine, subscriber, whole) for event in one.events]
            assert whole(events), events[:4]
            mine = [event for event in stored(events) if event.token_ids[:32] == PROMPT[:32]]
            assert mine[0].parent_block_hash is None and mine[0].block_size == 32
            told = [token for event in stored(events) if set(event.block_hashes) <= known for token in event.token_ids]
            assert told[:320] == PROMPT[:320]
            # Salted blocks are other blocks, and say what they were salted with.
            engine.generate([PROMPT[:40]], max_tokens=1, salt="other")
            later = hear(engine, subscriber, lambda events: any(event.extra_keys for event in stored(events)))
            salted = [event for one in later for event in one.events if isinstance(event, BlockStored) and event.extra_keys]
            assert salted and "other" in str(salted[0].extra_keys) and not set(salted[0].block_hashes) & known
            # Blocks that a reset makes unfindable are reported as removed.
            assert engine.reset(connector=True)

            def gone(events: list[Any]) -> bool:
                away = {h for event in events if isinstance(event, BlockRemoved) for h in event.block_hashes}
                return known <= away or any(isinstance(event, AllBlocksCleared) for event in events)

            assert gone([event for one in hear(engine, subscriber, gone) for event in one.events])
            assert subscriber.counts.malformed == subscriber.counts.unknown == subscriber.counts.lost == 0


@pytest.mark.parametrize("hook", ["tiering", "direct"])
def test_the_offloading_hooks_tell_hashes(tiny: Path, endpoint: str, hook: str) -> None:
    with Engine(tiny, {**RANDOM, "kv_transfer_config": kv_transfer(hook, events=table(endpoint))}) as engine:
        engine.generate([PROMPT], max_tokens=1)
        known = hashes(engine)
        with Subscriber(endpoint, replay_endpoint=endpoint + "r", topic="kv@") as subscriber:
            def whole(events: list[Any]) -> bool:
                return known <= {h for event in stored(events) for h in event.block_hashes}

            events = [event for one in hear(engine, subscriber, whole) for event in one.events]
            assert whole(events), events[:4]
            assert all(event.token_ids == [] for event in stored(events))


def test_a_table_that_cannot_be_meant_refuses_startup(tiny: Path) -> None:
    with pytest.raises(EngineError, match="events has no option 'port'"):
        Engine(tiny, {**RANDOM, **transfer(events={"endpoint": "tcp://127.0.0.1:*", "port": 1})})
