"""Whether this vLLM is one that the connector was made for."""
from __future__ import annotations

import inspect
from typing import Any

import vllm

from ...engine import ConfigurationError

SUPPORTED = ("0.32", "0.33")
_NEEDED = ("register_kv_caches", "bind_connector_metadata", "clear_connector_metadata", "start_load_kv",
           "wait_for_layer_load", "save_kv_layer", "wait_for_save", "get_finished", "get_transfer_results",
           "get_block_ids_with_load_errors", "handle_preemptions", "get_handshake_metadata",
           "set_xfer_handshake_metadata_pp_aware", "get_num_new_matched_tokens", "update_state_after_alloc",
           "build_connector_meta", "update_connector_output", "on_new_request", "bind_kv_cache_manager", "reset_cache",
           "build_connector_worker_meta")


def version() -> str:
    return str(getattr(vllm, "__version__", "unknown"))


def minor() -> str:
    return ".".join(version().split(".")[:2])


def check(base: type[Any]) -> None:
    """Refuses a vLLM with another connector interface than the supported one."""
    text = f"KvbmConnector supports vLLM {' and '.join(SUPPORTED)}, and this is vLLM {version()}"
    if minor() not in SUPPORTED:
        raise ConfigurationError(text)
    missing = [name for name in _NEEDED if not hasattr(base, name)]
    if missing:
        raise ConfigurationError(f"{text}, without {', '.join(missing)}: another build than the released one")
    names = list(inspect.signature(base.__init__).parameters)
    if names[:4] != ["self", "vllm_config", "role", "kv_cache_config"]:
        raise ConfigurationError(f"{text}, whose connectors are made with {', '.join(names[1:])}: another build than "
                                 "the released one")
