"""Messages between the scheduler's half of the connector and the workers' halves."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata, KVConnectorMetadata, KVConnectorWorkerMetadata,
)


@dataclass
class Span:
    """Consecutive blocks of one group of layers: their hashes, one after the other, and where they stand. A block id of
    0, vLLM's null block, is none."""

    group: int
    hashes: bytes
    hash_bytes: int
    block_ids: list[int]
    parent: Optional[bytes] = None  # hash of the block before the first

    def names(self) -> list[bytes]:
        return [self.hashes[i:i + self.hash_bytes] for i in range(0, len(self.hashes), self.hash_bytes)]


@dataclass
class StoreJob:
    request: str
    spans: list[Span]


@dataclass
class LoadJob:
    request: str
    spans: list[Span]


@dataclass(frozen=True)
class Remote:
    """A prefill that waits to be fetched: the name of its offer, the nodes of its ranks, and what it is of."""

    offer: str
    nodes: tuple[tuple[str, str], ...]  # (address, name), by rank
    tokens: int
    prompt: str = ""  # decode.digest of them


@dataclass
class OfferJob:
    """A finished prefill; the decode side fetches its blocks."""

    request: str
    offer: str
    block_ids: list[int]


@dataclass
class ReceiveJob:
    """A request with blocks from `first` on from a prefill engine. Without blocks: the prefill engine is notified that
    none are wanted."""

    request: str
    remote: Remote
    first: int
    block_ids: list[int]


@dataclass
class StepMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """One step. `written`: blocks that this step writes and that others may have had before. `spaces`: what the namespaces
    were called when it was made, by rank and group of layers; a reset gives them other names."""

    stores: list[StoreJob] = field(default_factory=list)
    loads: list[LoadJob] = field(default_factory=list)
    offers: list[OfferJob] = field(default_factory=list)
    receives: list[ReceiveJob] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    spaces: list[bytes] = field(default_factory=list)
    idle: bool = False  # nothing is computed in it
    prompt_tokens: int = 0  # that it computes; 0 where it computes much else, too


@dataclass
class Heard(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """A worker's report of a step, besides vLLM's own. `left`: requests with found blocks that were not loaded, because
    computing them is faster."""

    left: set[str] = field(default_factory=set)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> Heard:
        return Heard(self.left | other.left)


@dataclass
class RankFacts(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    """Facts of a worker for the scheduler: the names of its namespaces by group of layers (None: its cache is
    disabled), the bytes of its largest block, and its node."""

    rank: int
    spaces: Optional[list[str]]
    largest: int
    address: str
    node: str
