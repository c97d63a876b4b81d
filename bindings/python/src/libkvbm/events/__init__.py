"""KV events: routers hear which blocks libkvbm has, and libkvbm hears an engine. Needs pyzmq and msgspec (or msgpack).

The formats are vLLM's (maps from 0.25 on, arrays before, as llm-d reads them) and SGLang's; docs/engines/events.md
says which consumer takes which.

    publisher = Publisher("tcp://*:5557", replay_endpoint="tcp://*:5558", topic="kv@pod-1@my-model")
    source = EventSource(manager, publisher)
    source.start()

For plug-ins of engines. A block is told when it is described and stored, in either order:

    source.describe(ns, keys, hashes, parent=hash_before, tokens=tokens, block_size=16, lora_name=..., extra_keys=...)

where keys[i] names in libkvbm what hashes[i] is in the engine (its full digests, or numbers), and tokens are those of
all the blocks. It is called where the blocks are stored, takes no lock that anything slow holds, and says the same again
for free. Then the tiers speak for themselves: offloads, evictions, resets and lost tiers become events with the medium
of the tier. An engine that collects its connectors' events itself (vLLM's take_events) makes
EventSource(manager, whole=False) without a sink and returns `take()`.

`open_source(manager, options.get("events"))` makes publisher and source of a table in an engine's configuration.
"""
from __future__ import annotations

from .groups import Group
from .index import ANY, Adapter, Index, Prefix
from .kinds import (GPU, SGLANG_MEDIUMS, VLLM_MEDIUMS, AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event, Hash,
                    sglang_hash, vllm_hash)
from .options import open_source
from .publisher import Publisher, PublisherCounts
from .source import EventSource, Sink, SourceCounts
from .subscriber import Received, Subscriber, SubscriberCounts
from .wire import Decoded, decode, encode

__all__ = ["ANY", "GPU", "SGLANG_MEDIUMS", "VLLM_MEDIUMS", "Adapter", "AllBlocksCleared", "Batch", "BlockRemoved",
           "BlockStored", "Decoded", "Event", "EventSource", "Group", "Hash", "Index", "Prefix", "Publisher",
           "PublisherCounts", "Received", "Sink", "SourceCounts", "Subscriber", "SubscriberCounts", "decode", "encode",
           "open_source", "sglang_hash", "vllm_hash"]
