"""A real vLLM publishes its events; libkvbm's subscriber and `kvbm watch` read them at the same time."""
from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import RANDOM, Engine
from libkvbm.events import (AllBlocksCleared, BlockRemoved, BlockStored, Index, Received, Subscriber,
                            vllm_hash)

ROOT = Path(__file__).parents[4]
PROMPT = [(7 * i + 3) % 500 + 3 for i in range(320)]
OTHER = [(11 * i + 5) % 500 + 3 for i in range(320)]


def command() -> str:
    found = next((str(path) for path in (ROOT / "build/release/kvbm", ROOT / "build/install/bin/kvbm")
                  if path.exists()), shutil.which("kvbm"))
    if found is None:
        pytest.skip("the kvbm command: cmake --build build/release --target kvbm_command")
    return found


@pytest.fixture(scope="module")
def sockets() -> Iterator[tuple[str, str]]:
    """ipc, which an engine binds: nothing listens on a port. The path must be short."""
    with tempfile.TemporaryDirectory(prefix="kv") as directory:
        yield f"ipc://{directory}/e", f"ipc://{directory}/r"


@pytest.fixture(scope="module")
def heard(tiny: Path, sockets: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """Events that both readers received of one run: two prompts, a reset, and the first prompt again."""
    endpoint, replay = sockets
    watch = [command(), "watch", endpoint, "--replay", replay, "--topic", "kv@", "--json", "--tokens"]
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint, "replay_endpoint": replay,
              "topic": "kv@here@tiny"}
    with Engine(tiny, {**RANDOM, "kv_events_config": events}) as engine:
        engine.generate([PROMPT], max_tokens=4)
        # Both come late: what they missed is in the replay ring.
        with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as child, \
                Subscriber(endpoint, replay_endpoint=replay, topic="kv@") as subscriber:
            received: list[Received] = []
            hashes = engine.kv()
            for turn in range(40):  # until both subscriptions have arrived
                engine.generate([OTHER[turn:]], max_tokens=1)
                received += [one for one in iter(lambda: subscriber.receive(0.3), None)]
                if received and turn:
                    break
            engine.reset()
            engine.generate([PROMPT], max_tokens=4)
            end = time.monotonic() + 30
            while time.monotonic() < end and not repeated(received):
                one = subscriber.receive(0.5)
                received += [one] if one is not None else []
            child.terminate()
            said = child.stdout.read() if child.stdout is not None else ""
        yield {"received": received, "rows": [json.loads(line) for line in said.splitlines()], "hashes": hashes,
               "counts": subscriber.counts, "code": child.returncode, "log": engine.said()}


def stored_of(received: list[Received]) -> list[BlockStored]:
    return [event for one in received for event in one.events
            if isinstance(event, BlockStored) and event.token_ids == PROMPT]


def repeated(received: list[Received]) -> bool:
    return len(stored_of(received)) >= 2


def test_every_message_came_from_the_first_on(heard: dict[str, Any]) -> None:
    received = heard["received"]
    assert [one.seq for one in received] == list(range(len(received))) and received[0].replayed
    counts = heard["counts"]
    assert counts.lost == counts.malformed == counts.unknown == counts.restarts == 0 < counts.recovered
    assert {one.stream for one in received} == {"kv@here@tiny/0"}


def test_blocks_have_their_tokens_and_the_engines_own_hashes(heard: dict[str, Any]) -> None:
    first, again = stored_of(heard["received"])[:2]
    assert len(first.block_hashes) == 10 and first.block_size == 32 and first.medium == "GPU"
    assert first.parent_block_hash is None
    assert first == again  # a prompt has the same hashes after a reset
    # vLLM's full digests inside become these numbers in events.
    inside = {vllm_hash(bytes.fromhex(digest)[:32]) for digest in heard["hashes"]}
    assert set(first.block_hashes) <= inside


def test_an_index_knows_the_prefix_until_the_reset_and_again_after(heard: dict[str, Any]) -> None:
    index, known = Index(), []
    hashes = stored_of(heard["received"])[0].block_hashes
    for stream, event in [(one.stream, event) for one in heard["received"] for event in one.events]:
        index.apply(stream, [event])
        found = index.longest_prefix([*hashes, 1])
        known.append(found[0].blocks if found else 0)
        assert not isinstance(event, AllBlocksCleared) or known[-1] == 0
    assert known[0] == 10 and 0 in known and known[-1] == 10


def test_kvbm_watch_saw_the_same(heard: dict[str, Any]) -> None:
    rows, received = heard["rows"], heard["received"]
    assert heard["code"] == 0 and rows, heard["log"][-2000:]
    summary = rows.pop()
    assert summary["type"] == "Summary" and summary["lost"] == summary["malformed"] == summary["unknown"] == 0
    assert summary["mediums"][0]["medium"] == "GPU"

    def told(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["seq"], row["type"], row.get("block_hashes"), row.get("parent_block_hash"), row.get("token_ids"))

    ours = [(one.seq, type(event).__name__, getattr(event, "block_hashes", None),
             getattr(event, "parent_block_hash", None), getattr(event, "token_ids", None))
            for one in received for event in one.events]
    last = received[-1].seq
    assert [told(row) for row in rows if row["seq"] <= last] == ours
    assert not any(isinstance(event, BlockRemoved) for one in received for event in one.events)
