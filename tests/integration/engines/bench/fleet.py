"""The engines that are compared: one vLLM for each way to keep KV, all up at the same time, so that they are asked in
turns."""
from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "lmcache")]

from engine import Engine, EngineError, Output  # noqa: E402
from hooks import connector, kv_transfer  # noqa: E402
from lmcache_server import Server  # noqa: E402
from rows import say  # noqa: E402

HOST, POOL = "1GiB", "512MiB"
# LMCache's own default: tokens of a chunk.
CHUNK = 256
LMCACHE = {"PYTHONPATH": str(HERE.parent / "lmcache" / "site"), "PYTHONHASHSEED": "0", "LMCACHE_TRACK_USAGE": "false",
           "DO_NOT_TRACK": "1"}
PLAIN = "alone"
CONTROL = "alone_again"
HOOKS = ("tiering", "direct", "connector")
WAYS = (*HOOKS, "lmcache")
# vLLM's host pool alone: a reset of the connector is the end of all that the hooks have.
EMPTY = "child.core().scheduler.connector.connector_scheduler.reset_cache()"
# Of an engine with KvbmConnector: what it has stored is brought to the disk, and leaves host memory as if others had
# taken its place.
MANAGER = """
import libkvbm
from libkvbm.vllm.connector import engines
(worker,), = engines._workers.values()
manager = worker.tiers.manager
"""
EVICT = MANAGER + """
worker._wait_for_stores(list(worker._reading))
manager.flush(60_000_000_000)
ns, taken, most = libkvbm.Namespace(manager, "room"), [], 1 << 12
while most:
    try:
        taken.append(manager.allocate(ns, most))
    except libkvbm.NoRoomError:
        most //= 2
for blocks in taken:
    blocks.release()
result = manager.stats().tiers[0].blocks
"""
ADDRESS = MANAGER + "result = manager.node_address()"


@dataclass
class Member:
    """One engine. `forget` empties what vLLM keeps by itself, so that a repeated prompt comes from what is measured."""

    name: str
    engine: Engine
    forget: Callable[[], object]

    def ask(self, prompt: Sequence[int], tokens: int = 1) -> Output:
        return self.engine.generate([list(prompt)], tokens)[0]

    def settle(self) -> None:
        """vLLM hands over what it stores with the steps that follow."""
        self.engine.generate([[1, 2, 3]], 4)

    def evict(self) -> None:
        left = self.engine.run(EVICT, timeout_s=90)
        if left:
            raise EngineError(f"{left} blocks stayed in the host memory of vLLM {self.name}: something holds them")


class Fleet:
    """Starts engines and ends them all. `llm` are arguments of vllm.LLM that all have."""

    def __init__(self, model: Path, place: Path, llm: dict[str, Any], threads: int) -> None:
        self._model, self._place, self._llm = model, place, llm
        self._environment = {"OMP_NUM_THREADS": str(threads)}
        self._stack = ExitStack()
        self.members: dict[str, Member] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str, transfer: Optional[dict[str, Any]] = None, env: Optional[dict[str, str]] = None
              ) -> Member:
        say(f"starting vLLM {name}")
        llm = self._llm | ({"kv_transfer_config": transfer} if transfer is not None else {})
        engine = Engine(self._model, llm, env=self._environment | (env or {}), log=self._place / f"{name}.log")
        self._stack.enter_context(engine)
        own = (transfer or {}).get("kv_connector_extra_config", {}).get("spec_name") == "KvbmTieringSpec"
        member = self.members[name] = Member(name, engine, lambda: (own and engine.run(EMPTY), engine.reset()))
        member.ask(range(100, 400), 2)  # the first calls of an engine are not like the others
        member.settle()
        return member

    def start_way(self, name: str) -> Member:
        """One of PLAIN, CONTROL and WAYS."""
        if name == "lmcache":
            say("starting LMCache's server")
            server = Server([], self._place / "lmcache.log", l1_gib=1.0, chunk=CHUNK)
            self._stack.enter_context(server)
            return self.start(name, server.connector(), LMCACHE)
        if name == "connector":
            return self.start(name, connector(HOST))
        if name in (PLAIN, CONTROL):
            return self.start(name)
        return self.start(name, kv_transfer(name, host=HOST, pool=POOL, weigh=True))
