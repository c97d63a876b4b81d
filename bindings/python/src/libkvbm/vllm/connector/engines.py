"""The halves of a connector that live in one process find each other here."""
from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Optional

from ... import Cache, Manager, Namespace, ShareRole
from ...engine import Aside

if TYPE_CHECKING:
    from .worker import WorkerSide


class Tiers:
    """A manager with the engine's namespaces in it, one for each group of layers; with caches on a worker."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.spaces: list[Namespace] = []
        self.caches: list[Cache] = []
        self.is_node = bool(manager.node_address() or manager.nodes())
        # Lookups are from memory: no other process and no node is asked.
        self.quick = not self.is_node and manager.share().role in (ShareRole.OFF, ShareRole.OWNER)

    def close(self) -> None:
        for cache in self.caches:
            cache.close()
        for ns in self.spaces:
            ns.close()
        self.manager.close()


_lock = threading.Lock()
_workers: dict[str, list[WorkerSide]] = {}


def add(engine: str, worker: WorkerSide) -> None:
    with _lock:
        _workers.setdefault(engine, []).append(worker)


def remove(engine: str, worker: WorkerSide) -> None:
    with _lock:
        left = [other for other in _workers.get(engine, []) if other is not worker]
        _workers[engine] = left
        if not left:
            del _workers[engine]


def worker_of(engine: str) -> Optional[WorkerSide]:
    """The worker of that engine in this process, if it is here: it then is the only one."""
    with _lock:
        found = _workers.get(engine, [])
        return found[-1] if found else None


def aside() -> Aside:
    return Aside("KvbmConnector", logging.getLogger("vllm.libkvbm"))
