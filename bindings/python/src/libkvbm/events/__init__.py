"""KV events: sends events about libkvbm's blocks to routers, and receives those of engines. Needs pyzmq and msgspec (or
msgpack).

The formats are vLLM's (maps from 0.25 on, arrays before, as read by llm-d) and SGLang's; docs/engines/events.md lists
the format of each consumer.

    publisher = Publisher("tcp://*:5557", replay_endpoint="tcp://*:5558", topic="kv@pod-1@my-model")
    source = EventSource(manager, publisher)
    source.start()

For plug-ins of engines. An event of a block is sent when it is described and stored, in either order:

    source.describe(ns, keys, hashes, parent=hash_before, tokens=tokens, block_size=16, lora_name=..., extra_keys=...)

keys[i] is the key in libkvbm of the engine's block hashes[i] (its full digests, or numbers), and tokens are those of
all the blocks. Call it when the blocks are stored. It takes no lock that is held for long, and repeated calls are
cheap. Then offloads, evictions, resets and lost tiers become events with the medium of the tier. For an engine that
collects its connectors' events itself (vLLM's take_events), make EventSource(manager, whole=False) without a sink and
return `take()`.

`open_source(manager, options.get("events"))` makes publisher and source from a table in an engine's configuration.
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
