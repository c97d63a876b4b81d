"""SGLang's hierarchical cache on libkvbm: a storage backend for HiCache's "dynamic" kind.

    --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
    '{"backend_name": "kvbm", "module_path": "libkvbm.sglang", "class_name": "KvbmStorage", "interface_v1": 1,
      "settings": {"host.capacity": "32GiB"}, "disk": "/nvme/kv", "disk_capacity": "500GiB"}'

docs/engines/sglang.md says what the keys mean.
"""
from __future__ import annotations

from .interface import require

require()

from .storage import KvbmStorage  # noqa: E402

__all__ = ["KvbmStorage"]
