"""A host pool of SGLang with its pages stored by libkvbm. SGLang itself copies between it and the device."""
from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

import torch

from ..cache import Cache, Tensor
from ..constants import FOREVER, NO_TIER, Lookup, MemoryKind, Status
from ..errors import KvbmError, MissError, NoRoomError, PeerError
from ..key import Keys
from ..manager import Manager
from ..namespace import Namespace
from .names import names
from .pages import Piece, page_count, page_tokens

_log = logging.getLogger("libkvbm.sglang")
_PAGES = (MissError, NoRoomError, PeerError)  # errors of single pages, not of the library


@dataclass(frozen=True)
class Record:
    """One record of every page: all of it, or a part where pages are larger than the library's blocks, or where their
    heads are kept apart. `cache` is None if the pool copies its pages itself."""

    ns: Namespace
    pieces: Sequence[int]  # their bytes, in order: what is loaded must be cut as what was stored
    cache: Optional[Cache]

    @property
    def bytes(self) -> int:
        return sum(self.pieces)


def attach(manager: Manager, ns: Namespace, pool: Any, pieces: Sequence[Piece]) -> Record:
    tensors = [Tensor(piece.data, block_stride=piece.stride, page_bytes=piece.bytes) for piece in pieces]
    cache = Cache(manager, ns, page_count(pool), tensors=tensors, memory=MemoryKind.HOST)
    return Record(ns, [piece.bytes for piece in pieces], cache)


class PoolStore:
    """Finds, loads and stores pages of one pool. A page is there, loaded or stored if all of its records are. Thread:
    any."""

    def __init__(self, manager: Manager, pool: Any, records: Sequence[Record], *, timeout_ns: int = FOREVER,
                 ask_nodes_ns: int = 0) -> None:
        self.pool = pool
        self.records = list(records)
        self.bytes = sum(record.bytes for record in records)
        self._manager = manager
        self._tokens = page_tokens(pool)
        self._pages = page_count(pool)
        self._timeout_ns = timeout_ns
        self._ask_nodes_ns = ask_nodes_ns

    # ---- lookup

    def hits(self, digest: bytes) -> int:
        """How many leading pages are there."""
        return min(self._leading(record, digest) for record in self.records)

    def present(self, digest: bytes) -> list[bool]:
        """Which pages are there."""
        n = len(digest) // 32
        there = [True] * n
        for record in self.records:
            with self._manager.lookup(record.ns, names(record.ns, digest), mode=Lookup.EACH,
                                      ask_nodes_ns=self._ask_nodes_ns) as match:
                items = match.items(0, n) if match else []
            there = [a and b for a, b in zip(there, [i.tier != NO_TIER for i in items] or [False] * n)]
        return there

    def _leading(self, record: Record, digest: bytes) -> int:
        with self._manager.lookup(record.ns, names(record.ns, digest), ask_nodes_ns=self._ask_nodes_ns) as match:
            return match.hits

    # ---- pages of the pool

    def load(self, digest: bytes, host_indices: Any, compute_ns: int = 0) -> list[bool]:
        """`compute_ns` is what the engine would need to compute a page; 0: they are loaded whatever that takes."""
        n = len(digest) // 32
        pages = self._rows(host_indices, n)
        if pages is None:
            return [False] * n
        if self.records[0].cache is None:
            return self._load_flat(digest, pages)
        done = [True] * n
        for record in self.records:
            done = _both(done, self._load(record.cache, names(record.ns, digest), pages,
                                          compute_ns // len(self.records)))
        return done

    def store(self, digest: bytes, host_indices: Any, *, parent: Optional[bytes], chained: bool) -> list[bool]:
        n = len(digest) // 32
        pages = self._rows(host_indices, n)
        if pages is None:
            return [False] * n
        if self.records[0].cache is None:
            return self._store_flat(digest, pages)
        done = [True] * n
        for record in self.records:
            before = None if parent is None else names(record.ns, parent)
            done = _both(done, self._store(record.cache, names(record.ns, digest), pages, before, chained))
        return done

    # ---- flat pages, of the caller

    def load_page(self, digest: bytes, page: torch.Tensor) -> bool:
        """Into a contiguous tensor in host memory of just a page's bytes; undefined bytes in it if False."""
        return self._each_part(page, lambda record, cache: self._load(cache, names(record.ns, digest), [0]))

    def store_page(self, digest: bytes, page: torch.Tensor) -> bool:
        return self._each_part(
            page, lambda record, cache: self._store(cache, names(record.ns, digest), [0], None, False))

    def _each_part(self, page: torch.Tensor, work: Callable[[Record, Cache], list[bool]]) -> bool:
        flat = page.view(torch.uint8).reshape(-1)
        if flat.numel() != self.bytes:
            _log.error("a page of %d bytes was given for a pool whose pages have %d", flat.numel(), self.bytes)
            return False
        at = 0
        for record in self.records:
            parts = []
            for size in record.pieces:
                parts.append(flat[at:at + size])
                at += size
            with Cache(self._manager, record.ns, 1, tensors=parts) as cache:
                if not all(work(record, cache)):
                    return False
        return True

    def _load_flat(self, digest: bytes, pages: Sequence[int]) -> list[bool]:
        done = []
        for i, row in enumerate(pages):
            page = self.pool.get_dummy_flat_data_page()
            done.append(self.load_page(digest[32 * i:32 * i + 32], page))
            if done[-1]:
                self.pool.set_from_flat_data_page(row * self._tokens, page)
        return done

    def _store_flat(self, digest: bytes, pages: Sequence[int]) -> list[bool]:
        there = self.present(digest)
        return [there[i] or self.store_page(digest[32 * i:32 * i + 32],
                                            self.pool.get_data_page(row * self._tokens, flat=True).contiguous())
                for i, row in enumerate(pages)]

    # ---- the library

    def _load(self, cache: Optional[Cache], keys: Keys, pages: Sequence[int], compute_ns: int = 0) -> list[bool]:
        assert cache is not None
        n = len(keys)
        with cache.lookup(keys, mode=Lookup.EACH, ask_nodes_ns=self._ask_nodes_ns) as match:
            if not match:
                return [False] * n
            return _outcome(lambda: cache.load(match, pages, timeout_ns=self._timeout_ns,
                                               compute_block_ns=compute_ns).item_status, n)

    def _store(self, cache: Optional[Cache], keys: Keys, pages: Sequence[int], parent: Optional[Keys],
               chained: bool) -> list[bool]:
        assert cache is not None
        return _outcome(lambda: cache.store(keys, pages, parent=parent, unchained=not chained,
                                            timeout_ns=self._timeout_ns).item_status, len(keys))

    def _rows(self, host_indices: Any, n: int) -> Optional[list[int]]:
        """The page that each run of slots is; None, and a line in the log, if they are no whole pages of the pool."""
        slots = host_indices.detach().to(device="cpu", dtype=torch.int64).reshape(-1)
        if slots.numel() != n * self._tokens:
            _log.error("%d slots were given for %d pages of %d tokens", slots.numel(), n, self._tokens)
            return None
        grid = slots.reshape(n, self._tokens)
        first = grid[:, 0]
        whole = (grid == first[:, None] + torch.arange(self._tokens)).all() and (first % self._tokens == 0).all()
        if n and not (bool(whole) and int(first.min()) >= 0 and int(first.max()) < self._pages * self._tokens):
            _log.error("slots were given that are no whole pages of the host pool")
            return None
        rows: list[int] = (first // self._tokens).tolist()
        return rows

    def close(self) -> None:
        for record in self.records:
            if record.cache is not None:
                record.cache.close()
            record.ns.close()


def _outcome(call: Callable[[], memoryview], n: int) -> list[bool]:
    try:
        return [status == Status.OK for status in call()]
    except KvbmError as error:
        if error.item_status is not None and isinstance(error, _PAGES):
            return [status == Status.OK for status in error.item_status]
        if isinstance(error, _PAGES):
            return [False] * n
        raise


def _both(a: Sequence[bool], b: Sequence[bool]) -> list[bool]:
    return [x and y for x, y in zip(a, b)]
