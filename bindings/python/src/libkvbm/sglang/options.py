"""Options of libkvbm in --hicache-storage-backend-extra-config."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ..constants import FOREVER
from ..engine import Configuration, ConfigurationError
from ..engine.configuration import flag_of, size_of

# SGLang's own, which it takes out or reads itself.
_SGLANG = ("backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold", "prefetch_timeout_base",
           "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys", "tp_lcm_size", "file_storage_path")
_OWN = ("block_bytes", "timeout_ms", "ask_nodes_ms", "events", "weigh")


@dataclass(frozen=True)
class Options:
    """Options besides those of libkvbm.engine.Configuration:

    block_bytes   largest record; larger pages are cut. The pool's page by default. The same on all processes that
                  share a tier set
    timeout_ms    limit of one load or store of a batch; 5,000 by default, 0 = no limit
    ask_nodes_ms  time that a lookup waits for other nodes (node.peers); 0 by default
    events        a table of libkvbm.events.open_source: sends events about stored blocks to routers
    weigh         true: pages that take longer to load than to compute are misses
    """

    library: Configuration
    block_bytes: int
    timeout_ns: int
    ask_nodes_ns: int
    zero_copy: bool
    events: Optional[Mapping[str, Any]]
    weigh: bool

    @classmethod
    def of(cls, extra: Optional[Mapping[str, Any]], processes: int = 1) -> Options:
        """`processes`: the ranks of the model, each with this configuration. Several independent processes cannot open
        one directory, so by default they share it."""
        given = dict(extra or {})
        if processes > 1 and given.get("disk"):
            given.setdefault("share", True)
        library = Configuration.of(given, also=_SGLANG + _OWN)
        block = size_of(given["block_bytes"], "block_bytes") if "block_bytes" in given else 0
        timeout = _milliseconds(given, "timeout_ms", 5000)
        return cls(library, block, timeout or FOREVER, _milliseconds(given, "ask_nodes_ms", 0),
                   bool(given.get("interface_v1", 0)), given.get("events"), flag_of(given, "weigh"))


def _milliseconds(given: Mapping[str, Any], key: str, default: int) -> int:
    """In nanoseconds."""
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise ConfigurationError(f"{key} is {value!r}: a number of milliseconds is expected")
    return int(value * 1_000_000)
