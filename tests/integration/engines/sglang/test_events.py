"""SGLang's cache controller stores pages, and libkvbm tells a router in SGLang's words which it keeps."""
from __future__ import annotations

import tempfile
import time

import pytest
import sglang_pools as p

from libkvbm.events import AllBlocksCleared, BlockRemoved, BlockStored, Subscriber, sglang_hash

TOKENS = list(range(1000, 1000 + 6 * p.PAGE))


def test_pages_are_told_when_they_are_stored_and_when_they_are_cleared(engine):
    with tempfile.TemporaryDirectory(prefix="kv") as place:
        endpoint, replay = f"ipc://{place}/e", f"ipc://{place}/r"
        one = engine("page_first", options=p.extra(interface_v1=1, events={"endpoint": endpoint,
                                                                           "replay_endpoint": replay}))
        # From the first on, what it missed by replay.
        with Subscriber(endpoint, replay_endpoint=replay) as subscriber:
            def hear(enough):
                events, end = [], time.monotonic() + 30
                while not enough(events) and time.monotonic() < end:
                    one.store([7 + len(events)] * p.PAGE, one.host.alloc(p.PAGE))  # late subscriptions hear by a next one
                    received = subscriber.receive(0.5)
                    events += received.events if received is not None else []
                return events

            assert one.store(TOKENS, one.host.alloc(len(TOKENS))) == len(TOKENS)
            wanted = [sglang_hash(bytes.fromhex(key)) for key in one.hashes(TOKENS)]

            def told(events):
                return [h for event in events if isinstance(event, BlockStored) for h in event.block_hashes]

            stored = hear(lambda events: set(wanted) <= set(told(events)))
            assert set(wanted) <= set(told(stored))
            mine = next(event for event in stored if isinstance(event, BlockStored) and wanted[0] in event.block_hashes)
            assert mine.medium == "CPU_PINNED" and all(-(1 << 63) <= h < 1 << 63 for h in mine.block_hashes)
            assert mine.parent_block_hash is None
            one.backend.clear()

            def gone(events):
                return any(isinstance(event, AllBlocksCleared) for event in events) or set(wanted) <= {
                    h for event in events if isinstance(event, BlockRemoved) for h in event.block_hashes}

            assert gone(hear(gone))
            assert subscriber.counts.malformed == subscriber.counts.lost == 0


def test_pages_in_several_records_are_refused(engine):
    with tempfile.TemporaryDirectory(prefix="kv") as place, pytest.raises(ValueError, match="raise block_bytes"):
        one = engine("page_first", options=p.extra(interface_v1=1, block_bytes="4KiB",
                                                   events={"endpoint": f"ipc://{place}/e"}))
        one.store(TOKENS, one.host.alloc(len(TOKENS)))
