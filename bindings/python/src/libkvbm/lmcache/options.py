"""The options of libkvbm in the configuration of LMCache's plug-ins, and the supported versions of LMCache."""
from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from ..constants import FOREVER
from ..engine import Aside, Configuration, ConfigurationError
from ..engine.configuration import flag_of, size_of
from . import FOUND, SUPPORTED
from .objects import Objects

_MINE = ("ask_nodes_ms", "block_bytes", "replicated", "timeout_ms", "weigh")
_BLOCK = "1MiB"


@dataclass(frozen=True)
class Options:
    """libkvbm's common options (engine.Configuration), and of the plug-ins for LMCache:

    block_bytes    an object is kept in blocks of this size; 1MiB. Best is a divisor of a chunk's bytes
    replicated     true: all ranks hold the same KV (MLA): rank 0 writes, and every rank reads what it wrote
    ask_nodes_ms   how long a lookup waits for other nodes to say what they have; 0 = only what is known of them
    timeout_ms     most that one load or store may take; 30,000 by default, 0 = no limit
    weigh          true: of a load what would take longer than computing it is answered as not there
    """

    configuration: Configuration
    block_bytes: int
    replicated: bool
    ask_nodes_ms: int
    timeout_ms: int
    weigh: bool

    @classmethod
    def of(cls, given: Optional[Mapping[str, object]]) -> Options:
        options = dict(given or {})
        configuration = Configuration.of(options, also=_MINE)
        ask, timeout = (_milliseconds(options, "ask_nodes_ms", 0, 60_000),
                        _milliseconds(options, "timeout_ms", 30_000, 3_600_000))
        block_bytes = size_of(options.get("block_bytes", _BLOCK), "block_bytes")
        if not 4096 <= block_bytes <= 1 << 30:
            raise ConfigurationError(f"block_bytes is {options.get('block_bytes')!r}: 4KiB to 1GiB are possible")
        return cls(configuration, block_bytes, flag_of(options, "replicated", False), ask, timeout,
                   flag_of(options, "weigh"))

    def open(self, name: str, arena: Optional[memoryview] = None) -> Objects:
        return Objects(self.configuration, self.block_bytes, Aside(name), arena, self.ask_nodes_ms * 10**6,
                       self.timeout_ms * 10**6 or FOREVER, self.weigh)


def _milliseconds(given: Mapping[str, object], key: str, default: int, most: int) -> int:
    value = given.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ConfigurationError(f"{key} is {value!r}: milliseconds from 0 to {most} are expected")
    return value


def digest(*fields: object) -> bytes:
    """A name for these fields: each is preceded by its length, so no two lists of fields are the same text."""
    h = hashlib.sha256()
    for field in fields:
        data = field if isinstance(field, bytes) else str(field).encode(errors="surrogatepass")
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.digest()


def require(base: type, methods: Mapping[str, Sequence[str]]) -> None:
    """Refuses an LMCache without the methods, or names of parameters, that the plug-in uses."""
    for method, parameters in methods.items():
        found = getattr(base, method, None)
        has = inspect.signature(found).parameters if callable(found) else {}
        if not callable(found) or any(parameter not in has for parameter in parameters):
            wanted = f"{base.__name__}.{method}({', '.join(parameters)})"
            raise ConfigurationError(f"LMCache {FOUND} has no {wanted}: libkvbm.lmcache works with LMCache {SUPPORTED}")
