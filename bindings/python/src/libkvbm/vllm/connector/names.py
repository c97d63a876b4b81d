"""Keys in libkvbm of the blocks of requests."""
from __future__ import annotations

from typing import Any, Sequence

from ...engine.tokens import token_names
from ..adapters import adapter_of, named

# As vLLM's offloading names blocks: the number of the group of layers, big-endian, behind the hash.
_FIRST_GROUP = (0).to_bytes(4, "big")


class Names:
    """By the option `identity`: vLLM's hashes; the same as vLLM's offloading has them; or names of tokens. The first two
    with what the request's adapter is made of. A request has as many as vLLM has hashes of it. Thread: the
    scheduler's."""

    def __init__(self, identity: str, block_tokens: int) -> None:
        self._identity = identity
        self._block_tokens = block_tokens
        self._made: dict[str, list[bytes]] = {}
        self._adapters: dict[str, bytes] = {}  # by request: it keeps the one that it began with

    def of(self, request: Any) -> Sequence[bytes]:
        hashes: Sequence[bytes] = request.block_hashes
        if self._identity == "engine" and getattr(request, "lora_request", None) is None:
            return hashes
        made = self._made.setdefault(request.request_id, [])
        if len(made) < len(hashes):
            made += self._more(request, made, hashes)
        return made

    def forget(self, request: str) -> None:
        self._made.pop(request, None)
        self._adapters.pop(request, None)

    def _more(self, request: Any, made: list[bytes], hashes: Sequence[bytes]) -> list[bytes]:
        if self._identity != "tokens":
            if request.request_id not in self._adapters:
                self._adapters[request.request_id] = adapter_of(request)
            adapter, group = self._adapters[request.request_id], _FIRST_GROUP if self._identity == "pages" else b""
            return [named(bytes(name) + group, adapter) for name in hashes[len(made):]]
        if _beside_tokens(request):
            return []
        tokens = request.all_token_ids[len(made) * self._block_tokens:len(hashes) * self._block_tokens]
        return token_names(tokens, self._block_tokens, made[-1] if made else None)


def _beside_tokens(request: Any) -> bool:
    """Whether the request's KV depends on more than its tokens."""
    return any(getattr(request, name, None) for name in ("lora_request", "mm_features", "cache_salt")) or (
        getattr(request, "prompt_embeds", None) is not None)
