"""The parts of one store or load: objects, the submissions that move them, and the callback for the end."""
from __future__ import annotations

import threading
from typing import Callable, NamedTuple, Optional, Sequence

from ..match import Match
from ..namespace import Namespace


class Name(NamedTuple):
    """The name under which an object is found."""

    space: Namespace
    digest: bytes


class Item(NamedTuple):
    """An object, and the memory that it is stored from or loaded into."""

    name: Name
    view: memoryview


class Found(NamedTuple):
    """Result of a lookup for each name: bytes, 0 = not there. `match` holds the blocks found until it is released."""

    sizes: list[int]
    matches: list[Match]

    def release(self) -> None:
        for match in self.matches:
            match.release()


Done = Callable[[list[bool]], None]


class Batch:
    """One call of store or load: which items are good so far, and how many submissions are still to come."""

    def __init__(self, items: Sequence[Item], done: Done) -> None:
        self.items = items
        self.good = [True] * len(items)
        self.done = done
        self.pending = 1  # the submitting thread
        self.lock = threading.Lock()

    def fail(self, owners: Sequence[int]) -> None:
        for owner in owners:
            self.good[owner] = False

    def more(self) -> None:
        with self.lock:
            self.pending += 1

    def less(self) -> None:
        with self.lock:
            self.pending -= 1
            last = self.pending == 0
        if last:
            self.done(self.good)


class Group(NamedTuple):
    """Pieces of a batch that lie in one regular array of memory: one submission."""

    batch: Batch
    space: Namespace
    memory: memoryview
    stride: int
    page: int
    names: bytes  # one of NAME_BYTES for each piece
    blocks: list[int]
    owners: list[int]  # index of the item that each piece belongs to
    compute_ns: int = 0  # computing time of the whole batch; 0: it is loaded in any case

    def end(self, good: bool, status: Optional[memoryview] = None) -> None:
        """This submission is over; `status` says of which pieces it was not good."""
        if not good:
            self.batch.fail(self.owners if status is None else [o for o, s in zip(self.owners, status) if s != 0])
        self.batch.less()
