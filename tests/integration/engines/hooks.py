"""Makes vLLM's configuration for libkvbm, for tests and measurements."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

HOOKS = ("tiering", "direct")


def kv_transfer(hook: str, disk: Optional[Path] = None, *, host: str = "256MiB", pool: str = "128MiB",
                weigh: bool = False, **own: Any) -> dict[str, Any]:
    """vLLM's kv_transfer_config of one of libkvbm.vllm's hooks. Small models compute what large ones would load: loads are
    weighed only where that is asked for."""
    kvbm: dict[str, Any] = {"settings": {"host.capacity": host}, "weigh": weigh, **own}
    if disk is not None:
        kvbm |= {"disk": str(disk), "disk_capacity": "1GiB"}
    extra: dict[str, Any] = {"spec_module_path": "libkvbm.vllm", "kvbm": kvbm, "offload_prompt_only": False}
    if hook == "tiering":
        kvbm["pool"] = pool
        return {"kv_connector": "KvbmOffloadingConnector", "kv_connector_module_path": "libkvbm.vllm", "kv_role": "kv_both",
                "kv_connector_extra_config": extra | {"spec_name": "KvbmTieringSpec"}}
    return {"kv_connector": "KvbmOffloadingConnector", "kv_connector_module_path": "libkvbm.vllm",
            "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": extra | {"spec_name": "KvbmOffloadingSpec"}}


def connector(host: str = "256MiB", settings: Optional[dict[str, Any]] = None, **own: Any) -> dict[str, Any]:
    """vLLM's kv_transfer_config of libkvbm.vllm.connector."""
    return {"kv_connector": "KvbmConnector", "kv_connector_module_path": "libkvbm.vllm.connector",
            "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"settings": {"host.capacity": host, **(settings or {})}, **own}}
