"""Namespaces: the scope of keys."""
from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Optional

from . import _native as raw
from . import _raw
from .constants import Quota
from .errors import invalid
from .memory import shown, text

if TYPE_CHECKING:
    from .geometry import Geometry
    from .manager import Manager


class Namespace:
    """Tenant, model, adapter, geometry, epoch and a secret: keys of different namespaces never match. The same
    arguments give the same namespace on every machine. `model` says what makes KV comparable: weights, revision,
    element type. `secret` is 32 bytes from the operator. Without a geometry blocks are opaque. `codec` is how its
    records are coded where anything is ("default", "int8", "k:0-3=int8,default"); blocks that were coded with loss are
    misses without `allow_lossy`. With `weak_hashes` Keys.from_hashes takes hashes of fewer than 16 bytes, for which others
    with equal hashes are easily found. Thread: any."""

    __slots__ = ("_handle", "manager", "geometry", "units", "__weakref__")

    def __init__(self, manager: Manager, model: str, *, tenant: Optional[str] = None, adapter: Optional[str] = None,
                 geometry: Optional[Geometry] = None, secret: Optional[bytes] = None, epoch: int = 0,
                 quota_bytes: int = 0, quota_mode: Quota = Quota.EVICT, codec: Optional[str] = None,
                 allow_lossy: bool = False, weak_hashes: bool = False) -> None:
        options = _raw.kvbm_namespace_options_t()
        kept = (text(tenant, "tenant"), text(model, "model"), text(adapter, "adapter"),
                None if secret is None else bytes(secret), text(codec, "codec"))
        if kept[3] is not None and len(kept[3]) != 32:
            raise invalid("the secret has 32 bytes")
        options.tenant, options.model, options.adapter, options.secret, options.codec = kept
        options.allow_lossy, options.weak_hashes = int(allow_lossy), int(weak_hashes)
        options.epoch, options.quota_bytes, options.quota_mode = epoch, quota_bytes, quota_mode
        if geometry is not None:
            options.geometry = geometry._open()
        self._handle: Optional[raw.Handle] = raw.kvbm_namespace_open(manager._handle, options)[1]
        self.manager = manager
        self.geometry = geometry
        self.units: int = 1 if geometry is None else geometry.units

    @property
    def id(self) -> bytes:
        """The 16-byte namespace id; it changes with the epoch."""
        return raw.kvbm_namespace_id(self._handle)

    def invalidate(self) -> None:
        """Makes every block stored so far unfindable, for good, in every tier. Keys made before do not match any
        more: make them again."""
        raw.kvbm_namespace_invalidate(self._handle)

    def reset(self) -> None:
        """Forgets this namespace's blocks in every tier; keys stay valid."""
        raw.kvbm_namespace_reset(self._handle)

    def set_quota(self, quota_bytes: int, quota_mode: Quota = Quota.EVICT) -> None:
        """Changes the quota, for every handle of the namespace; 0 = none."""
        raw.kvbm_namespace_set_quota(self._handle, quota_bytes, quota_mode)

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Ends this reference; the blocks stay. Twice is fine."""
        self._handle = None

    def __repr__(self) -> str:
        return shown(self, self.closed) if self.closed else shown(self, False, id=self.id.hex(), units=self.units)

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()
