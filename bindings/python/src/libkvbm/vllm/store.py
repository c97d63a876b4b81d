"""Common parts of the plug-ins for vLLM: a manager made from the engine's options, lookups that never wait, and one
place where a fault disables the library."""
from __future__ import annotations

import logging
import queue as queues
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

from ..constants import NO_TIER, Lookup, ShareRole
from ..engine import Aside, Configuration, ConfigurationError
from ..errors import KvbmError, NoRoomError, PeerError
from ..key import Keys
from ..manager import Manager
from ..namespace import Namespace
from ..queue import Queue
from ..stats import Stats
from .adapters import named

if TYPE_CHECKING:
    from ..events import EventSource

log = logging.getLogger("libkvbm")
# How long an answer of another process or node is believed. A wrong "yes" costs a load that fails, a wrong "no" a
# computation that was not needed.
_BELIEVED_S = 1.0
_MOST_ANSWERS = 1 << 16
_ASK_NODES_NS = 20_000_000
# Of a group's number behind the hash in an OffloadKey.
_GROUP_BYTES = 4


class Store:
    """The manager of one engine. Its calls never block the engine's scheduler: what is in this process's memory (its
    host tier, its disk's index) is answered at once, what other processes and nodes have by a thread, later."""

    def __init__(self, name: str, options: Mapping[str, object], record_bytes: int, *, also: tuple[str, ...]) -> None:
        self.configuration = Configuration.of(options, also=("events", *also))
        self.manager: Manager = self.configuration.open(record_bytes)
        self._events = self._source(options.get("events"))
        self.aside = Aside(name, log, all_faults=True)
        self._seen: Optional[Stats] = None
        # An owner of a shared set can become a client, so that every lookup of one may have to ask.
        self.remote = (self.manager.share().role != ShareRole.OFF or bool(self.manager.node_address())
                       or bool(self.manager.nodes()))
        self._asker = _Asker(self.manager, self.aside) if self.remote else None

    def find(self, ns: Namespace, key: bytes) -> Optional[bool]:
        """Whether the block is anywhere; None: it is being asked, ask again."""
        def local() -> bool:
            with self.manager.lookup(ns, Keys(key), host_only=self.remote) as match:
                return match.hits > 0

        found = self.aside.call(local, False)
        if found or self._asker is None or self.aside.stepped:
            return found
        return self._asker.find(ns, key)

    def _source(self, options: Any) -> Optional[EventSource]:
        if options is None:
            return None
        from ..events import open_source

        if self.manager.share().role not in (ShareRole.OFF, ShareRole.OWNER):
            raise ConfigurationError("events needs tiers that this process owns: another one owns them")
        return open_source(self.manager, options, engine="vllm")

    def describe(self, ns: Namespace, names: Keys, keys: list[bytes], parent: Optional[bytes]) -> None:
        """Blocks that are stored under these names, as vLLM's offloading calls them; of their tokens it does not tell."""
        source = self._events
        if source is None:
            return
        before = None if parent is None else parent[:-_GROUP_BYTES]
        group = int.from_bytes(keys[0][-_GROUP_BYTES:], "big")
        self.aside.call(lambda: source.describe(ns, names, [key[:-_GROUP_BYTES] for key in keys],
                                                parent=before, group_idx=group), None)

    def soon(self, body: Callable[[], None]) -> None:
        """Runs what may wait for another process elsewhere, and everything else now."""
        if self._asker is None:
            body()
        else:
            self._asker.run(body)

    def refused(self, error: KvbmError) -> None:
        """A submission failed: want of room and of an owner pass, everything else ends our use of the library."""
        if not isinstance(error, (NoRoomError, PeerError)):
            self.aside.step(str(error))

    def failed(self, error: Exception) -> None:
        """As refused, of whatever went wrong."""
        if isinstance(error, KvbmError):
            self.refused(error)
        else:
            self.aside.step(f"{type(error).__name__}: {error}")

    def invalidate(self, spaces: Sequence[Namespace]) -> None:
        """Nothing that was stored in them is found any more; where that cannot be had, nothing at all is."""
        try:
            for ns in spaces:
                ns.invalidate()
        except KvbmError as error:
            self.aside.step(f"what was stored before a reset can still be found: {error}")

    def look_after(self) -> None:
        """Says so, once, when a tier was taken out of service; the others go on."""
        stats = self.aside.call(self.manager.stats, None)
        before, self._seen = self._seen, stats
        for i, tier in enumerate(stats.tiers if stats is not None else ()):
            if tier.disabled and not (before is not None and i < len(before.tiers) and before.tiers[i].disabled):
                log.error("libkvbm's tier %d was taken out of service after faults; the engine goes on without it", i)

    @property
    def stats(self) -> Optional[Stats]:
        """As look_after saw it last."""
        return self._seen

    def queue(self) -> Queue:
        """One more queue."""
        return Queue._of(self.manager._context, 4096)

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()
        if self._events is not None:
            self._events.close()
        self.manager.close()


class _Asker:
    """One thread that asks for everything that was wanted since it asked last."""

    def __init__(self, manager: Manager, aside: Aside) -> None:
        self._manager = manager
        self._aside = aside
        self._work: queues.SimpleQueue[Any] = queues.SimpleQueue()
        self._lock = threading.Lock()
        self._answers: dict[bytes, tuple[bool, float]] = {}
        self._wanted: set[bytes] = set()
        self._thread = threading.Thread(target=self._serve, name="kvbm-vllm-ask", daemon=True)
        self._thread.start()

    def find(self, ns: Namespace, key: bytes) -> Optional[bool]:
        with self._lock:
            found, until = self._answers.get(key, (False, 0.0))
            if time.monotonic() < until:
                return found
            if key not in self._wanted:
                self._wanted.add(key)
                self._work.put((ns, key))
        return None

    def run(self, body: Callable[[], None]) -> None:
        self._work.put(body)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            item = self._work.get()
            asked: dict[int, tuple[Namespace, list[bytes]]] = {}
            while item is not None:
                if callable(item):
                    item()
                else:
                    asked.setdefault(id(item[0]), (item[0], []))[1].append(item[1])
                try:
                    item = self._work.get_nowait()
                except queues.Empty:
                    break
            for ns, keys in asked.values():
                self._ask(ns, keys)
            if item is None:
                return

    def _ask(self, ns: Namespace, keys: list[bytes]) -> None:
        found = self._aside.call(lambda: present(self._manager, ns, keys, _ASK_NODES_NS), [False] * len(keys))
        until = time.monotonic() + _BELIEVED_S
        with self._lock:
            if len(self._answers) > _MOST_ANSWERS:
                self._answers.clear()
            self._answers.update((key, (hit, until)) for key, hit in zip(keys, found))
            self._wanted.difference_update(keys)


def present(manager: Manager, ns: Namespace, keys: list[bytes], ask_nodes_ns: int = 0) -> list[bool]:
    """Of each key whether it is in any tier."""
    with manager.lookup(ns, Keys(b"".join(keys)), mode=Lookup.EACH, ask_nodes_ns=ask_nodes_ns) as match:
        there = [item.tier != NO_TIER for item in match.items(0, len(match))]
    return there + [False] * (len(keys) - len(there))


def keys_of(ns: Namespace, hashes: list[bytes], adapter: bytes) -> Keys:
    """Names of blocks under vLLM's own (a hash of tokens, LoRA, images and salt, and the number of a group) and what the
    request's adapter is made of."""
    return Keys.from_hashes(ns, [named(name, adapter) for name in hashes])
