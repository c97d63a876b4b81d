"""KV events of what the backend keeps, in SGLang's words."""
from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ..constants import ShareRole
from ..engine import ConfigurationError
from ..manager import Manager
from .names import digests, names
from .pool import PoolStore

_PLAIN = 64  # digits of SGLang's hash of a page


class Told:
    """Says of pages what SGLang calls them when they are stored; the tiers say the rest themselves. SGLang does not tell
    its backends the tokens of a page. Thread: any."""

    def __init__(self, manager: Manager, options: Mapping[str, Any], store: PoolStore) -> None:
        from ..events import open_source

        source = open_source(manager, options, engine="sglang")
        assert source is not None
        self._source, self._ns = source, store.records[0].ns

    def describe(self, keys: Sequence[str], before: Optional[str]) -> None:
        if any(len(key) != _PLAIN for key in (*keys, before or keys[0])):
            return  # a scheme of keys that routers do not know
        digest = digests(keys)
        hashes = [digest[i:i + 32] for i in range(0, len(digest), 32)]
        self._source.describe(self._ns, names(self._ns, digest), hashes,
                              parent=None if before is None else digests([before]))

    def close(self) -> None:
        self._source.close()


def told_of(manager: Manager, config: Any, options: Optional[Mapping[str, Any]], store: Optional[PoolStore],
            ) -> Optional[Told]:
    """None without an event table, or if another rank sends the events."""
    if options is None or store is None or config.tp_rank != 0:
        return None
    if len(store.records) != 1:
        raise ConfigurationError(f"events needs pages that are one record, and these are {len(store.records)}: raise "
                                 "block_bytes, or take tp_lcm_size out")
    if manager.share().role not in (ShareRole.OFF, ShareRole.OWNER):
        raise ConfigurationError("events needs tiers that this process owns, and another one owns them")
    return Told(manager, options, store)
