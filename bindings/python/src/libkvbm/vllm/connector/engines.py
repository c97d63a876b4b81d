"""The halves of a connector that live in one process find each other here."""
from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

from ... import Cache, Manager, Namespace, ShareRole
from ...engine import Aside, Configuration, ConfigurationError

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
        left = [other for other in _workers.pop(engine, []) if other is not worker]
        if left:
            _workers[engine] = left


def worker_of(engine: str) -> Optional[WorkerSide]:
    """The worker of that engine in this process, if it is here: it then is the only one."""
    with _lock:
        found = _workers.get(engine, [])
        return found[-1] if found else None


def among_processes(vllm_config: Any, library: Configuration) -> Configuration:
    """Where vLLM runs workers in processes of their own, they and the scheduler share one tier set."""
    backend = vllm_config.parallel_config.distributed_executor_backend
    if backend in (None, "uni") and int(vllm_config.parallel_config.tensor_parallel_size) == 1:
        return library
    if backend not in (None, "mp", "uni"):
        raise ConfigurationError(f"distributed_executor_backend is {backend}: KvbmConnector knows uni and mp, with "
                                 "which all workers are on one machine")
    settings = dict(library.settings)
    if library.disk is None and library.config_file is None and "share_directory" not in settings:
        settings["share_directory"] = _place(vllm_config)
        os.makedirs(_place(vllm_config), mode=0o700, exist_ok=True)
    return replace(library, share=True, settings=settings)


def _place(vllm_config: Any) -> str:
    """Where the processes of one engine meet."""
    directory = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return os.path.join(directory, f"kvbm-vllm-{os.getuid()}-{vllm_config.kv_transfer_config.engine_id}")


def forget_place(vllm_config: Any) -> None:
    shutil.rmtree(_place(vllm_config), ignore_errors=True)


def aside() -> Aside:
    return Aside("KvbmConnector", logging.getLogger("vllm.libkvbm"), all_faults=True)
