"""Geometry of a model, shards and parts."""
from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Iterable, Optional, Sequence

from . import _native as raw
from .constants import ComponentKind, Element
from .memory import shown


@dataclass(frozen=True)
class Component:
    """One component of the model, whole: all layers and heads, before sharding."""

    kind: ComponentKind = ComponentKind.ATTENTION
    element: Optional[Element] = None  # None: BF16; BYTES for a state, which has no other
    layers: int = 1
    heads: int = 1
    head_dim: int = 0
    window_tokens: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class Shard:
    """Which part of a component a record holds. All zero = all layers and heads."""

    first_layer: int = 0
    layers: int = 0
    first_head: int = 0
    heads: int = 0
    replicated: bool = False


@dataclass(frozen=True)
class Part:
    """The records of a namespace that a call means: those of a component and a shard."""

    component: int = 0
    shard: Shard = Shard()


class Geometry:
    """Model facts and the tokens of one engine block; `units` engine blocks make one stored block. Thread: any."""

    __slots__ = ("_handle", "tokens_per_block", "units", "__weakref__")

    def __init__(self, tokens_per_block: int, components: Iterable[Component], *, units: int = 1) -> None:
        rows = list(components)
        memory = raw.Memory(raw.kvbm_component_t_size * max(len(rows), 1))
        for i, row in enumerate(rows):
            item = raw.kvbm_component_t_at(memory, i)
            item.kind, item.layers, item.heads = row.kind, row.layers, row.heads
            usual = Element.BYTES if row.kind == ComponentKind.STATE else Element.BF16
            item.element = usual if row.element is None else row.element
            item.head_dim, item.window_tokens, item.state_bytes = row.head_dim, row.window_tokens, row.state_bytes
        self._handle: Optional[raw.Handle] = raw.kvbm_geometry_create(tokens_per_block, units, memory, len(rows))[1]
        self.tokens_per_block = tokens_per_block
        self.units = units

    @property
    def fingerprint(self) -> int:
        """The 64-bit fingerprint that is part of the namespace."""
        return raw.kvbm_geometry_fingerprint(self._open())

    def record_bytes(self, component: int = 0, shard: Optional[Shard] = None) -> int:
        """Payload bytes of one record of that component and shard."""
        size: int = raw.kvbm_geometry_record_bytes(self._open(), component, shard_memory(shard))[1]
        return size

    def close(self) -> None:
        self._handle = None

    def _open(self) -> raw.Handle:
        if self._handle is None:
            raise closed("geometry")
        return self._handle

    def __repr__(self) -> str:
        facts = {} if self._handle is None else {"fingerprint": f"{self.fingerprint:016x}"}
        return shown(self, self._handle is None, tokens_per_block=self.tokens_per_block, units=self.units, **facts)

    def __enter__(self) -> Geometry:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()


def closed(what: str, more: str = "") -> Exception:
    from .errors import error_of

    return error_of(raw.KVBM_ERR_STALE, f"the {what} is closed" + (f", {more}" if more else ""))


def fill_shard(item: raw.Struct, shard: Shard) -> None:
    item.first_layer, item.layers, item.first_head = shard.first_layer, shard.layers, shard.first_head
    item.heads, item.replicated = shard.heads, int(shard.replicated)


def shard_memory(shard: Optional[Shard]) -> Optional[raw.Memory]:
    if shard is None:
        return None
    memory = raw.Memory(raw.kvbm_shard_t_size)
    fill_shard(raw.kvbm_shard_t_at(memory, 0), shard)
    return memory


def parts_memory(parts: Sequence[Part]) -> raw.Memory:
    memory = raw.Memory(raw.kvbm_part_t_size * max(len(parts), 1))
    for i, part in enumerate(parts):
        item = raw.kvbm_part_t_at(memory, i)
        item.component = part.component
        fill_shard(item.shard, part.shard)
    return memory


def part_memory(part: Optional[Part]) -> Optional[raw.Memory]:
    return None if part is None else parts_memory([part])
