"""Blocks in the order of libkvbm.engine.tokens, [layer][K, V][token][head][dim], out of the cache of vLLM's attention
for CPUs and back. Its kernels order a block as suits their instruction set; that order is not written down anywhere,
so it is asked for: numbers are stored with the engine's own kernel, and one looks where they went."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ... import Cache, Manager, Namespace, Tensor
from ...engine import ConfigurationError, Identity
from ...engine.tokens import canonical_identity

# Whole numbers that every kind of float has exactly.
_DIGIT = 128


def identity(model: str, views: Sequence[torch.Tensor], tokens: int, ranks: int) -> Identity:
    first = views[0]
    if ranks != 1 or first.dim() != 4 or any(view.shape != first.shape or view.dtype != first.dtype for view in views):
        raise ConfigurationError("identity tokens needs one rank, and layers of one shape [block][head][token][K and "
                                 f"V]: there are {ranks} ranks, and the first layer is {tuple(first.shape)}")
    return canonical_identity(model, str(first.dtype).removeprefix("torch."), layers=len(views),
                              heads=int(first.shape[1]), head_dim=int(first.shape[3]) // 2, tokens=tokens)


class Staged:
    """Blocks on their way, in the order that is common. They are copies: what is stored from them may be written to
    meanwhile, and what is loaded into them is verified before the engine's cache sees it."""

    def __init__(self, manager: Manager, ns: Namespace, rows: torch.Tensor) -> None:
        self.rows = rows
        flat = rows.view(torch.uint8).reshape(rows.shape[0], -1)
        self.cache = Cache(manager, ns, rows.shape[0], tensors=[Tensor(flat, page_bytes=flat.shape[1])])

    def close(self) -> None:
        self.cache.close()


class Canonical:
    """Thread: empty() any, all else the worker's."""

    def __init__(self, vllm_config: Any, layers: Sequence[str], views: Sequence[torch.Tensor], manager: Manager,
                 ns: Namespace) -> None:
        self._manager, self._ns = manager, ns
        self._views = list(views)
        _, self._heads, self._tokens, packed = views[0].shape
        self._dim = packed // 2
        modules = vllm_config.compilation_config.static_forward_context
        kinds = {getattr(modules.get(name), "isa", None) for name in layers}
        if len(kinds) != 1 or None in kinds or str(vllm_config.cache_config.cache_dtype).startswith("fp8"):
            raise ConfigurationError(f"identity tokens does not know the kernels of this cache: {kinds}, "
                                     f"{vllm_config.cache_config.cache_dtype}")
        self._order = _order_of(kinds.pop(), self._heads, self._tokens, self._dim, views[0].dtype)
        self._back = torch.argsort(self._order)

    def empty(self, n: int) -> Staged:
        rows = torch.empty((n, len(self._views), 2, self._tokens, self._heads, self._dim), dtype=self._views[0].dtype)
        return Staged(self._manager, self._ns, rows)

    def read(self, block_ids: Sequence[int]) -> Staged:
        """Copies of blocks."""
        staged = self.empty(len(block_ids))
        ids = torch.tensor(block_ids)
        for layer, view in enumerate(self._views):
            pages = view.index_select(0, ids).reshape(len(block_ids), self._heads, -1)[:, :, self._order]
            staged.rows[:, layer] = pages.view(-1, self._heads, 2, self._tokens, self._dim).permute(0, 2, 3, 1, 4)
        return staged

    def write(self, staged: Staged, rows: Sequence[int], block_ids: Sequence[int]) -> None:
        """Rows that were loaded, into blocks of the engine's."""
        if not rows:
            return
        ids, chosen = torch.tensor(block_ids), staged.rows[torch.tensor(rows)]
        for layer, view in enumerate(self._views):
            pages = chosen[:, layer].permute(0, 3, 1, 2, 4).reshape(len(rows), self._heads, -1)[:, :, self._back]
            view[ids] = pages.view(-1, *view.shape[1:])


def _order_of(isa: Optional[str], heads: int, tokens: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """order[x] is where in the page of a head the engine has what stands at x of [K, V][token][dim]."""
    from vllm import _custom_ops as ops

    def stored(values: torch.Tensor) -> torch.Tensor:
        """The second block of a cache in which these are K and V."""
        cache = torch.zeros((2, heads, tokens, 2 * dim), dtype=dtype)
        k_cache, v_cache = cache.view(2, heads, 2 * tokens, dim).chunk(2, dim=2)
        plain = values.to(dtype).view(2, tokens, 1, dim).expand(2, tokens, heads, dim).contiguous()
        ops.cpu_attn_reshape_and_cache(plain[0], plain[1], k_cache, v_cache, torch.arange(tokens, 2 * tokens), isa)
        return cache[1].reshape(heads, -1).to(torch.int64)

    n = 2 * tokens * dim
    numbers = torch.arange(n)
    found, scale = torch.zeros((heads, n), dtype=torch.int64), 1
    while scale < n:
        found += stored(numbers // scale % _DIGIT) * scale
        scale *= _DIGIT
    if not bool((found == found[0]).all()) or not bool((found[0].sort().values == numbers).all()):
        raise ConfigurationError(f"identity tokens does not know the order in which vLLM's kernels ({isa}) keep a block")
    return torch.argsort(found[0])
