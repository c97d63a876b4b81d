"""libkvbm as an L2 backend of AIBrix's KV cache (aibrix-kvcache).

AIBrix knows its backends by name, from a list in its code; `install()` adds "KVBM" to it:

    import libkvbm.aibrix
    libkvbm.aibrix.install()            # before a KVCacheManager is made; twice is fine

With vLLM nothing needs to be called: vLLM loads the entry point of this package in each of its processes, and it
installs where AIBRIX_KV_CACHE_OL_L2_CACHE_BACKEND is KVBM. Other programs can be started as
`python -m libkvbm.aibrix program.py`. docs/engines/aibrix.md has whole examples.
"""
from __future__ import annotations

try:
    import aibrix_kvcache as _aibrix_kvcache
except ImportError as error:
    raise ImportError(f"libkvbm.aibrix needs aibrix-kvcache, which cannot be imported here ({error}): "
                      "pip install aibrix-kvcache==0.8.0") from error

from ..connector_store import ConnectorStore  # noqa: E402
from .connector import KvbmConnector  # noqa: E402
from .hook import SUPPORTED, install  # noqa: E402
from .options import Options  # noqa: E402
from .regions import Region  # noqa: E402
from .status import code_of, status_of  # noqa: E402

del _aibrix_kvcache

__all__ = ["SUPPORTED", "ConnectorStore", "KvbmConnector", "Options", "Region", "code_of", "install", "status_of"]
