"""Places of the pages of an SGLang host pool in memory.

A pool returns the pieces of memory of any page (get_page_buffer_meta). In nearly all pools piece j of page p is at
base_j + p * stride_j. The plug-in checks this with several pages of the pool; it does not rely on the name of the
layout. Then libkvbm reads and writes the pieces in place. Other pools (pages that move, state beside the pages, layouts
without such an answer) have no pieces: the pool's own functions copy their pages as a whole.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Optional, Sequence

import torch

_TENSORS = ("kv_buffer", "k_buffer", "v_buffer", "index_k_buffer", "index_k_scale_buffer", "index_k_with_scale_buffer",
            "temporal_buffer", "conv_buffer")
_Meta = list[tuple[int, int]]


@dataclass(frozen=True)
class Piece:
    """A part of every page: `bytes` at data + page * stride. `data` ends with the last page's part."""

    data: torch.Tensor
    stride: int
    bytes: int

    def cut(self, first: int, n: int) -> Piece:
        """Bytes [first, first + n) of the piece."""
        last = self.data.numel() - self.bytes
        return Piece(self.data[first:last + first + n], self.stride, n)


def page_count(pool: Any) -> int:
    return int(pool.size) // page_tokens(pool)


def page_tokens(pool: Any) -> int:
    return int(getattr(pool, "page_size", 1) or 1)


def is_logical(pool: Any) -> bool:
    """A pool that numbers pages and holds no bytes: the models' other pools hold them all."""
    return getattr(pool, "kv_buffer", None) is None and not any(True for _ in _tensors(pool))


def pieces_of(pool: Any) -> Optional[list[Piece]]:
    """The pieces of a page, in the order of its flat form where they lie in one tensor; None if the pool's pages must
    be copied by itself."""
    if getattr(pool, "shared_allocation_domain", None) is not None:
        return None  # compaction moves its pages
    found = _pieces(pool, lambda indices: pool.get_page_buffer_meta(indices))
    if found is None:
        return _whole(pool)
    if len({piece.data.untyped_storage().data_ptr() for piece in found}) == 1:
        found.sort(key=lambda piece: piece.data.data_ptr())
    return found


def _whole(pool: Any) -> Optional[list[Piece]]:
    """Layout page_unified, of which the pool does not say more than its buffer does: [page][bytes]."""
    buffer = getattr(pool, "kv_buffer", None)
    if pool.layout != "page_unified" or not isinstance(buffer, torch.Tensor) or not any(True for _ in _flat(buffer)) \
            or buffer.shape[0] != page_count(pool):
        return None
    size = buffer.numel() * buffer.element_size() // buffer.shape[0]
    return [Piece(buffer.view(torch.uint8).reshape(-1), size, size)]


def head_groups_of(pool: Any, groups: int) -> Optional[list[list[Piece]]]:
    """The pieces of a page for each of so many groups of heads (layout page_head)."""
    found = _pieces(pool, lambda indices: pool.get_split_heads_page_buffer_meta(indices, groups))
    if found is None or len(found) % groups != 0:
        return None
    each = len(found) // groups
    return [found[i:i + each] for i in range(0, len(found), each)]


def cut_into(pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """Cuts pages into records of at most `most` bytes each, with the same bytes in the same order."""
    records: list[list[Piece]] = [[]]
    room = most
    for piece in pieces:
        at = 0
        while at < piece.bytes:
            if room == 0:
                records.append([])
                room = most
            n = min(room, piece.bytes - at)
            records[-1].append(piece if n == piece.bytes else piece.cut(at, n))
            at += n
            room -= n
    return records


def _pieces(pool: Any, ask: Callable[[torch.Tensor], Any]) -> Optional[list[Piece]]:
    tokens, n = page_tokens(pool), page_count(pool)
    if n < 1:
        return None

    def meta(page: int) -> Optional[_Meta]:
        try:
            answer = ask(torch.arange(page * tokens, (page + 1) * tokens, dtype=torch.int64))
        except (NotImplementedError, ValueError, AttributeError, AssertionError, TypeError):
            return None
        return None if not answer else [(int(p), int(s)) for p, s in zip(answer[0], answer[1], strict=True)]

    first = meta(0)
    if not first:
        return None
    second = (meta(1) if n > 1 else None) or first
    strides = [b[0] - a[0] for a, b in zip(first, second)] if n > 1 else [size for _, size in first]
    if any(stride < size for stride, (_, size) in zip(strides, first)):
        return None
    for page in {1, 2, n // 2, n - 1} & set(range(n)):
        if meta(page) != [(at + page * stride, size) for (at, size), stride in zip(first, strides)]:
            return None
    held = list(_tensors(pool))
    pieces = [_within(held, at, stride, size, n) for (at, size), stride in zip(first, strides)]
    return None if any(piece is None for piece in pieces) else [piece for piece in pieces if piece is not None]


def _within(held: Sequence[torch.Tensor], at: int, stride: int, size: int, n: int) -> Optional[Piece]:
    """The piece as a part of the tensor that holds it: memory that no tensor of the pool accounts for is not used."""
    extent = (n - 1) * stride + size
    for tensor in held:
        offset = at - tensor.data_ptr()
        if 0 <= offset and offset + extent <= tensor.numel() * tensor.element_size():
            return Piece(tensor.view(torch.uint8).reshape(-1)[offset:offset + extent], stride, size)
    return None


def _tensors(pool: Any) -> Iterator[torch.Tensor]:
    listed = getattr(pool, "get_hybrid_pool_buffer", None)
    yield from _flat(listed() if callable(listed) else None)
    for name in _TENSORS:
        yield from _flat(getattr(pool, name, None))


def _flat(held: Any) -> Iterator[torch.Tensor]:
    if isinstance(held, torch.Tensor):
        if held.numel() > 0 and held.is_contiguous() and held.device.type == "cpu" and held.dim() > 0:
            yield held
    elif isinstance(held, (list, tuple)):
        for item in held:
            yield from _flat(item)
