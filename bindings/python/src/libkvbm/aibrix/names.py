"""Keys of tokens alone, which other engines' plug-ins make as well (libkvbm.engine.tokens)."""
from __future__ import annotations

from typing import Any, Optional

from aibrix_kvcache.l2.key_builders import KeyBuilder

from ..engine.tokens import token_names


class TokenKeyBuilder(KeyBuilder):  # type: ignore[misc]
    """AIBrix gives it the tokens before and those that are asked for, both whole blocks."""

    @property
    def signature(self) -> str:
        return "tokens"

    def build(self, prefix: Optional[Any], query: Any) -> tuple[tuple[Any, bytes], ...]:
        size = self.block_size
        n = len(query) // size
        if n == 0:
            return ()
        before = 0 if prefix is None else len(prefix)
        whole = query if prefix is None else prefix + query
        names = self._names(whole)
        return tuple((whole[:before + (i + 1) * size], names[before // size + i]) for i in range(n))

    def _names(self, tokens: Any) -> list[bytes]:
        """Of all blocks, kept with the prompt that they are of: AIBrix asks for it several times."""
        kept: dict[tuple[int, int], list[bytes]] = tokens._meta_.__dict__.setdefault("libkvbm_names", {})
        found = kept.setdefault((tokens._start, self.block_size), [])
        have = len(found) * self.block_size
        if have + self.block_size <= len(tokens):
            found += token_names(tokens.to_numpy()[have:].tolist(), self.block_size, found[-1] if found else None)
        return found
