"""The options in kv_connector_extra_config."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ...engine import Configuration, ConfigurationError
from ...engine.configuration import flag_of
from ..pages import chosen

_OWN = ("ask_nodes_ms", "cache", "events", "handoff", "handoff_key_file", "handoff_listen", "handoff_timeout", "handoff_wait",
        "identity", "layers", "load_timeout", "model", "weigh")


@dataclass(frozen=True)
class Options:
    """The library's own options (libkvbm.engine.Configuration) and these:

    cache             true: blocks are stored in the tiers and found again
    handoff           prefill->decode; true by default if kv_role is kv_producer or kv_consumer
    handoff_listen    address of this engine's node, host:port; 127.0.0.1:0, any free port of this machine
    handoff_key_file  key that both sides have (kvbm key new); needed unless both are one user's processes on one
    machine
    handoff_timeout   seconds that finished prefills wait for their decode side
    handoff_wait      seconds that a decode waits for its KV before it computes it itself
    load_timeout      time limit of a load in seconds
    weigh             true: blocks that take longer to load than to compute are computed
    layers            true, for caches on GPUs: a request is computed at once, and waits for its loaded
                      blocks, layer by layer; false: it is computed when all blocks have come
    identity          engine: other KvbmConnectors find the blocks; pages: other hooks of vLLM, too; tokens: blocks are
                      named by their tokens and have one order, which plug-ins of other engines know
    model             name and revision of the weights, equal on all sides with identity tokens
    events            a table of libkvbm.events.open_source: sends events about stored blocks to routers
    ask_nodes_ms      if the cache is a node: time that a lookup waits for other nodes
    """

    library: Configuration
    cache: bool
    handoff: bool
    handoff_listen: str
    handoff_key_file: Optional[str]
    handoff_timeout_ns: int
    handoff_wait_ns: int
    load_timeout_ns: int
    ask_nodes_ns: int
    weigh: bool
    layers: bool
    produces: bool
    consumes: bool
    identity: str
    model: str
    events: Optional[Mapping[str, Any]]

    @classmethod
    def of(cls, transfer: Any) -> Options:
        """From vLLM's KVTransferConfig."""
        given: Mapping[str, Any] = transfer.kv_connector_extra_config or {}
        role = transfer.kv_role
        handoff = flag_of(given, "handoff", role in ("kv_producer", "kv_consumer"))
        cache = flag_of(given, "cache", True)
        if not (handoff or cache):
            raise ConfigurationError("KvbmConnector has nothing to do: cache and handoff are both false")
        consumes = role in ("kv_consumer", "kv_both")
        if transfer.kv_load_failure_policy == "fail" and (cache or consumes):
            raise ConfigurationError('set "kv_load_failure_policy": "recompute" in the KV transfer configuration: with '
                                     '"fail", vLLM\'s default, a request of which a block is lost is refused instead '
                                     'of computed')
        identity = chosen(given, ("engine", "pages", "tokens"))
        model = given.get("model", "")
        if not isinstance(model, str) or (identity == "tokens") != bool(model):
            raise ConfigurationError("identity tokens needs model, the name and revision by which all plug-ins that "
                                     "share the blocks call the weights; without it there is no such option")
        return cls(library=Configuration.of(given, also=_OWN), cache=cache, handoff=handoff,
                   handoff_listen=str(given.get("handoff_listen", "127.0.0.1:0")),
                   handoff_key_file=given.get("handoff_key_file"),
                   handoff_timeout_ns=_seconds(given, "handoff_timeout", 60.0),
                   handoff_wait_ns=_seconds(given, "handoff_wait", 30.0),
                   load_timeout_ns=_seconds(given, "load_timeout", 30.0),
                   ask_nodes_ns=_seconds(given, "ask_nodes_ms", 20.0, 1e6),
                   weigh=flag_of(given, "weigh", True), layers=flag_of(given, "layers", False),
                   identity=identity, model=model, events=given.get("events"), produces=role in ("kv_producer", "kv_both"), consumes=consumes)


def _seconds(given: Mapping[str, Any], key: str, otherwise: float, unit_ns: float = 1e9) -> int:
    value = given.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise ConfigurationError(f"{key} is {value!r}: a number above 0 is expected")
    return int(value * unit_ns)
