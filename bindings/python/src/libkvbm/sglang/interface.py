"""The interface of SGLang that this plug-in needs, and a one-line refusal if the installed one differs."""
from __future__ import annotations

import dataclasses
import importlib
from importlib.metadata import PackageNotFoundError, version

SUPPORTED = "0.5.23"

_CONFIG = ("tp_rank", "tp_size", "pp_rank", "pp_size", "is_mla_model", "model_name", "extra_config")
_RESULT = ("kv_hit_pages", "extra_pool_hit_pages", "restorable_prefix_pages")
_METHODS = frozenset(("get", "batch_get", "set", "batch_set", "exists"))


def found() -> str:
    """The version of SGLang that is installed."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return "of no known version"


def require() -> None:
    """Raises ImportError, in one sentence that says what to install, unless SGLang's storage interface is what this
    plug-in was written for."""
    try:
        module = importlib.import_module("sglang.srt.mem_cache.hicache_storage")
    except ImportError as error:
        raise ImportError(f"libkvbm.sglang needs SGLang with what it depends on (pip install sglang=={SUPPORTED}): "
                          f"{error}") from error
    lacking = _lacking(module)
    if lacking:
        raise ImportError(f"libkvbm.sglang was made for SGLang {SUPPORTED}, and the one here, {found()}, has another "
                          f"storage interface ({lacking}): install sglang=={SUPPORTED}, or a newer libkvbm")


def _lacking(module: object) -> str:
    """The relevant differences as text; empty if there are none."""
    for name in ("HiCacheStorage", "HiCacheStorageConfig", "PoolHitPolicy", "PoolName", "PoolTransfer",
                 "PoolTransferResult"):
        if not hasattr(module, name):
            return f"no {name}"
    asked: frozenset[str] = getattr(getattr(module, "HiCacheStorage"), "__abstractmethods__", frozenset())
    if asked - _METHODS:
        return f"HiCacheStorage wants {', '.join(sorted(asked - _METHODS))} too"
    for kind, wanted in (("HiCacheStorageConfig", _CONFIG), ("PoolTransferResult", _RESULT)):
        has = {field.name for field in dataclasses.fields(getattr(module, kind))}
        if set(wanted) - has:
            return f"{kind} without {', '.join(sorted(set(wanted) - has))}"
    return ""
