"""Requests that are scheduled together with the load of their leading blocks: with the option `layers`.

vLLM names the blocks of such a request in its prefix cache when it schedules the request, before any of them is loaded.
No other request may find them before the load has succeeded. Thread: the scheduler's.
"""
from __future__ import annotations

from typing import Callable, Iterable, Sequence


class AtOnce:
    def __init__(self) -> None:
        self._made: dict[str, list[bytes]] = {}  # of the step that is being made: names of the blocks that are loaded
        self._names: set[bytes] = set()
        self._tables: dict[str, list[int]] = {}  # of the step that is under way: all blocks of the request

    def add(self, request: str, names: list[bytes]) -> None:
        self._made[request] = names
        self._names.update(names)

    def arriving(self, names: Sequence[bytes]) -> bool:
        """Whether a request that vLLM has found these blocks for is to ask again in the next step: some are loaded in
        this one."""
        return bool(self._names) and not self._names.isdisjoint(bytes(name) for name in names)

    def step(self, blocks_of: Callable[[str], tuple[list[int], ...]]) -> Iterable[str]:
        """Records that the step was made. Returns the requests of the step before: their loads have ended. Requests
        that were preempted and load again are excluded."""
        ended = [name for name in self._tables if name not in self._made]
        self._tables = {name: list(blocks_of(name)[0]) for name in self._made}
        self._made.clear()
        self._names.clear()
        return ended

    def unsound(self, bad: set[int]) -> set[int]:
        """After the step: blocks that others must not find because they are not loaded, or were computed behind such."""
        found: set[int] = set()
        for table in self._tables.values():
            first = next((i for i, block in enumerate(table) if block in bad), len(table))
            found.update(block for block in table[first:] if block)
        return found
