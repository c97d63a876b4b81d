"""How the host pools of one rank become records of libkvbm."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from ..engine import ConfigurationError
from ..engine.facts.sglang import identity_of, place_of_pool, replicated
from ..manager import Manager
from .identity import server_facts
from .interface import found
from .options import Options
from .pages import Piece, cut_into, head_groups_of, page_tokens, pieces_of
from .pool import PoolStore, Record, attach

_MOST_RECORDS = 64  # of one page: larger pages make larger blocks


@dataclass(frozen=True)
class _Part:
    """Bytes of a page that are kept together: all of it, or one group of heads."""

    pieces: Optional[Sequence[Piece]]  # None: the pool copies its pages itself
    bytes: int
    group: Optional[tuple[int, int]]
    heads: int


class Pools:
    def __init__(self, config: Any, options: Options) -> None:
        self._config = config
        self._options = options
        self._facts = server_facts(options.library.revision, options.library.weak_hashes)

    def writes(self, name: str, pool: Any) -> bool:
        """Whether this rank stores the pool's pages; of equal ones one rank does."""
        return bool(getattr(self._config, "is_storage_writer", True)) or not replicated(self._config, name, pool)

    def block_bytes(self, pools: Mapping[str, Any]) -> int:
        """The library's blocks are all of one size: that of the anchor's pages, since they are the most."""
        if self._options.block_bytes:
            return self._options.block_bytes
        sizes = {name: [part.bytes for part in self._parts(name, pool)] for name, pool in pools.items()}
        largest = max((size for row in sizes.values() for size in row), default=1 << 16)
        anchor = max(sizes["kv"]) if "kv" in sizes else largest
        return max(anchor, -(-largest // _MOST_RECORDS))

    def store(self, manager: Manager, name: str, pool: Any) -> PoolStore:
        most = manager.block_bytes
        records: list[Record] = []
        for part in self._parts(name, pool):
            if part.pieces is None:
                sizes = [min(most, part.bytes - at) for at in range(0, part.bytes, most)]
                cut: list[list[Piece]] = [[] for _ in sizes]
            else:
                cut = cut_into(part.pieces, most)
                sizes = [sum(piece.bytes for piece in pieces) for pieces in cut]
            for i, (pieces, size) in enumerate(zip(cut, sizes)):
                ns = identity_of(found(), self._config, self._facts, name, pool, page_tokens(pool),
                                 place_of_pool(self._config, name, pool, part.group), (i, len(cut)),
                                 [piece.bytes for piece in pieces], size, part.heads
                                 ).namespace(manager, tenant=self._options.library.tenant,
                                             secret=self._options.library.secret)
                records.append(Record(ns, [size], None) if part.pieces is None else attach(manager, ns, pool, pieces))
        return PoolStore(manager, pool, records, timeout_ns=self._options.timeout_ns,
                         ask_nodes_ns=self._options.ask_nodes_ns)

    def _parts(self, name: str, pool: Any) -> list[_Part]:
        if getattr(pool, "_is_dummy", False):
            raise ConfigurationError("SGLang keeps MLA pages on one rank alone, as it does for its own backends: the "
                                     "kvbm backend needs host memory on every rank")
        lcm = getattr(self._config, "tp_lcm_size", None)
        if lcm and name == "kv" and pool.layout == "page_head" and self._options.zero_copy \
                and not replicated(self._config, name, pool):
            return self._head_groups(pool, lcm // self._config.tp_size, lcm)
        pieces = pieces_of(pool)
        if pieces is not None:
            return [_Part(pieces, sum(piece.bytes for piece in pieces), None, 1)]
        try:
            page = pool.get_dummy_flat_data_page()
            if pool.get_data_page(0, flat=True).nbytes != page.nbytes:
                raise ValueError("its pages are of different sizes")
        except (NotImplementedError, ValueError, AttributeError, TypeError) as error:
            raise ConfigurationError(f"SGLang's {type(pool).__name__} ({name}) with layout {pool.layout} gives no "
                                     f"pages to storage backends: choose another --hicache-mem-layout "
                                     f"({error})") from error
        return [_Part(None, page.numel() * page.element_size(), None, 1)]

    def _head_groups(self, pool: Any, mine: int, lcm: int) -> list[_Part]:
        groups = head_groups_of(pool, mine) if pool.head_num % mine == 0 else None
        if groups is None:
            raise ConfigurationError(f"tp_lcm_size is {lcm}: the {pool.head_num} heads of this rank cannot be kept in "
                                     f"{mine} groups")
        first = self._config.tp_rank * mine
        return [_Part(pieces, sum(piece.bytes for piece in pieces), (first + i, lcm), mine)
                for i, pieces in enumerate(groups)]
