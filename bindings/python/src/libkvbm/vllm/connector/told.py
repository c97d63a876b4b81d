"""KV events of what the connector keeps, for routers: which blocks of vLLM's are in which tier."""
from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ... import Keys, Manager, Namespace
from ...events import open_source


class Told:
    """Describes the blocks of requests when they are stored or found; the tiers say the rest themselves. Thread: the
    scheduler's."""

    def __init__(self, manager: Manager, spaces: Sequence[Namespace], options: Mapping[str, Any], rank: Optional[int],
                 hashed: int, tokens: Sequence[int]) -> None:
        source = open_source(manager, options, engine="vllm", rank=rank)
        assert source is not None
        self._source, self._spaces = source, spaces
        self._hashed, self._tokens = hashed, tokens

    def describe(self, request: Any, names: Sequence[bytes], first: int, upto: int) -> None:
        """The blocks that lie in tokens [first, upto) of a request, which are called so."""
        hashes, salt = request.block_hashes, getattr(request, "cache_salt", None)
        lora = getattr(request, "lora_request", None)
        for group, size in enumerate(self._tokens):
            step = size // self._hashed
            begin, end = first // size, min(upto // size, len(names) // step)
            if begin >= end:
                continue
            places = [(i + 1) * step - 1 for i in range(begin, end)]
            self._source.describe(
                self._spaces[group], Keys.from_hashes(self._spaces[group], [bytes(names[i]) for i in places]),
                [bytes(hashes[i]) for i in places], parent=bytes(hashes[begin * step - 1]) if begin else None,
                tokens=list(request.all_token_ids[begin * size:end * size]), block_size=size,
                extra_keys=_extra_keys(request, begin, end, size), group_idx=group,
                lora_name=getattr(lora, "lora_name", None), cache_salt=salt)

    def close(self) -> None:
        self._source.close()


def _extra_keys(request: Any, begin: int, end: int, size: int) -> Optional[list[Any]]:
    """The extra keys of each block in vLLM's own events: names of adapters and images, and the salt."""
    from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys, to_event_extra_keys

    found: list[Any] = []
    image = 0
    for i in range(begin, end):
        keys, image = generate_block_hash_extra_keys(request, i * size, (i + 1) * size, image)
        found.append(keys)
    told: Optional[list[Any]] = to_event_extra_keys(found) if any(found) else None
    return told
