"""Prefill->decode on a worker: a prefill's blocks are offered, and a decode's are fetched, by a node of their own."""
from __future__ import annotations

import logging
import os
import tempfile
import uuid
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from ... import Cache, Completion, Context, KvbmError, Manager, Namespace, Offer, Queue, Session, Source
from ...engine import ConfigurationError
from .counts import KvbmStats
from .layout import Whole
from .metadata import OfferJob, ReceiveJob, Remote
from .options import Options

log = logging.getLogger("vllm.libkvbm")
_MOST_PEERS = 1024
_FIRST_BLOCK = 0  # vLLM's null block, which no request has


@dataclass
class Ended:
    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: dict[str, set[int]] = field(default_factory=dict)


class Handoff:
    """Blocks move whole, and both sides have blocks of as many tokens. Thread: the worker's."""

    def __init__(self, options: Options, described: Whole, n_blocks: int, engine: str, rank: int, ranks: int,
                 stats: KvbmStats) -> None:
        self._options = options
        self._tokens = described.tokens
        self._rank, self._ranks = rank, ranks
        self._stats = stats
        self._folder = tempfile.TemporaryDirectory(prefix="kvbm-handoff-")
        self._peers_file = os.path.join(self._folder.name, "peers")
        self._peers: dict[str, str] = {}  # name -> address
        self._met: set[tuple[str, str]] = set()  # (address, name) of those that requests have come from
        self.name = f"vllm-{uuid.uuid4().hex[:16]}-{rank}"
        try:
            self._open(described, n_blocks)
        except KvbmError as error:
            self._folder.cleanup()
            raise ConfigurationError(f"the hand-off's node could not be started: {error}") from error
        self._under_way: dict[str, Union[Offer, Session]] = {}
        self._refused = Ended()
        log.info("KvbmConnector: rank %d of engine %s hands KV over at %s", rank, engine, self.address)

    def _open(self, described: Whole, n_blocks: int) -> None:
        settings: dict[str, Any] = {name: value for name, value in self._options.library.settings.items()
                                    if name.startswith("device.")}
        settings |= {"node.listen": self._options.handoff_listen, "node.name": self.name, "node.pool": "vllm-handoff",
                     "node.peers_file": self._peers_file, "host.capacity": max(16 << 20, 4 * described.record_bytes)}
        if self._options.handoff_key_file is not None:
            settings["node.key_file"] = self._options.handoff_key_file
        with Context(settings) as context:
            self._manager = Manager(context, block_bytes=described.record_bytes)
        library = self._options.library
        self._ns = Namespace(self._manager, described.name, tenant=library.tenant, secret=library.secret,
                             geometry=described.geometry)
        place = described.place
        self._cache = Cache(self._manager, self._ns, n_blocks, [described.part], memory=place.memory,
                            device=place.device)
        self._queue: Queue = self._manager.queue()
        self.address = self._manager.node_address()

    def close(self) -> None:
        for what in self._under_way.values():
            what.close()
        self._under_way.clear()
        for part in (self._cache, self._ns, self._manager):
            part.close()
        self._folder.cleanup()

    def offer(self, job: OfferJob) -> None:
        """Offers the blocks of a finished prefill, all of which are computed."""
        offer: Optional[Offer] = None
        try:
            offer = Offer(self._cache, bytes.fromhex(job.offer), job.block_ids, rank=self._rank, queue=self._queue,
                          user_data=job, timeout_ns=self._options.handoff_timeout_ns)
            self._under_way[job.request] = offer
            offer.publish_all()
        except KvbmError as error:
            log.warning("KvbmConnector: request %s cannot be handed over: %s", job.request, error)
            if offer is None:
                self._refused.sent.add(job.request)

    def receive(self, job: ReceiveJob, stream: Optional[int] = None) -> None:
        """Fetches the blocks of a request from the ranks that computed it. On a device they are written after what
        `stream` holds now."""
        self._know(job.remote)
        if (gone := self._gone(job.remote)) is not None:
            self._refuse(job, gone)
            return
        sources = [Source(address, i) for i, (address, _) in enumerate(job.remote.nodes)]
        # A session without wanted blocks is aborted; until then it may write an unused block.
        blocks = job.block_ids or [_FIRST_BLOCK]
        try:
            session = Session(self._cache, bytes.fromhex(job.remote.offer), blocks, sources, rank=self._rank,
                              ranks=self._ranks, first_position=job.first * self._tokens, queue=self._queue,
                              user_data=job, no_layers=True, timeout_ns=self._options.handoff_wait_ns, stream=stream)
        except KvbmError as error:
            self._refuse(job, str(error))
            return
        self._under_way[job.request] = session
        if not job.block_ids:
            session.abort("the decode side has it already")

    def _refuse(self, job: ReceiveJob, why: str) -> None:
        if job.block_ids:
            self._stats.add("receive_failures")
            self._refused.failed[job.request] = set(job.block_ids)
            log.warning("KvbmConnector: request %s does not come from its prefill engine, and is computed: %s",
                        job.request, why)

    def _gone(self, remote: Remote) -> Optional[str]:
        """Why a prefill engine that was there before cannot be reached now. One that is new is waited for."""
        met = [node for node in remote.nodes if node in self._met]
        if not met:
            return None
        states = {row.address: row.state for row in self._manager.nodes()}
        for address, _ in met:
            if states.get(address) != "ready":
                return f"{address}: {states.get(address, 'not connected')}"
        return None

    def poll(self, wait_ns: int) -> Ended:
        """Takes the ended transfers; on request it waits a little if some are in progress."""
        ended, self._refused = self._refused, Ended()
        receiving = any(isinstance(what, Session) for what in self._under_way.values())
        for completion in self._queue.wait(wait_ns) if wait_ns and receiving else self._queue.poll():
            job: Union[OfferJob, ReceiveJob] = completion.user_data
            what = self._under_way.pop(job.request, None)
            if isinstance(job, OfferJob):
                self._offer_ended(job, completion, what, ended)
            elif job.block_ids:
                self._receive_ended(job, completion, what, ended)
        return ended

    def _offer_ended(self, job: OfferJob, completion: Completion, what: Any, ended: Ended) -> None:
        ended.sent.add(job.request)
        if completion.status == 0:
            self._stats.add("sent_requests")
            return
        self._stats.add("send_failures")
        log.warning("KvbmConnector: request %s was not handed over, and its blocks are free: %s", job.request,
                    _reason(what))

    def _receive_ended(self, job: ReceiveJob, completion: Completion, what: Any, ended: Ended) -> None:
        ended.received.add(job.request)
        if completion.status == 0:
            self._met.update(job.remote.nodes)
            self._stats.add("received_requests")
            self._stats.add("received_bytes", completion.bytes)
            return
        self._stats.add("receive_failures")
        ended.failed[job.request] = set(job.block_ids)
        log.warning("KvbmConnector: request %s did not come from its prefill engine, and is computed: %s", job.request,
                    _reason(what))

    def _know(self, remote: Remote) -> None:
        """Has the node dial the nodes of a prefill engine that it has not met."""
        new = {name: address for address, name in remote.nodes if self._peers.get(name) != address}
        if not new:
            return
        # An engine that was started again has the address of one that has gone.
        gone = [name for name, address in self._peers.items() if address in new.values()]
        for name in gone:
            del self._peers[name]
        self._peers.update(new)
        for name in list(self._peers)[:-_MOST_PEERS]:
            del self._peers[name]
        self._met = {node for node in self._met if self._peers.get(node[1]) == node[0]}
        lines = "".join(f"name={name} address={address}\n" for name, address in self._peers.items())
        with open(self._peers_file + ".new", "w", encoding="ascii") as stream:
            stream.write(lines)
        os.replace(self._peers_file + ".new", self._peers_file)


def _reason(what: Any) -> str:
    try:
        what.wait(0)
    except KvbmError as error:
        return str(error)
    except AttributeError:
        pass
    return "it was given up"
