"""libkvbm keeps and moves the KV cache of large language models: beyond the memory of the GPU, found again by content,
shared by processes and nodes. This is the Python layer over kvbm.h; names are the header's.

    import libkvbm
    with libkvbm.Context({"host.capacity": "1GiB"}) as context, libkvbm.Manager(context) as manager: ...
"""
from __future__ import annotations

try:
    from . import _native as _native
    from . import _raw as _raw
except ImportError as error:
    # Python's own words for a missing extension speak of a circular import, the loader's name a file and no remedy.
    raise ImportError(f"libkvbm for Python lacks its native library, or that does not fit this Python or system ({error}): "
                      "install the wheel again (pip install ./bindings/python)") from error


def _check_version() -> None:
    # Before 1.0 a minor version may change the ABI, so the library's must be the header's.
    header: int = _native.KVBM_HEADER_VERSION
    library: int = _native.kvbm_version()
    if header // 1000 != library // 1000:
        raise ImportError(
            f"libkvbm for Python was made for libkvbm {_text(header)}, and the library that was found is "
            f"{_text(library)}: install the two of one version")


def _text(version: int) -> str:
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


_check_version()

from . import codec as codec  # noqa: E402
from .block import Blocks  # noqa: E402
from .cache import Cache, CachePart, DeviceMemory, Outcome, Tensor  # noqa: E402
from .constants import (  # noqa: E402
    FOREVER, NO_BLOCK, NO_TIER, Admit, CodecMode, ComponentKind, Duplicate, Element, EventKind, Form, Lookup,
    MemoryKind, Op, Priority, Quota, ShareRole, Status, TierNumber, WaitLayers,
)
from .context import Context, config_reference  # noqa: E402
from .dispatch import Completion, Event  # noqa: E402
from .errors import (  # noqa: E402
    CallerError, ClosedError, DeadlineError, ForkedError, InternalError, KvbmError, MissError, NoRoomError, PeerError,
    UnavailableError,
)
from .geometry import Component, Geometry, Part, Shard  # noqa: E402
from .key import Keys, Position  # noqa: E402
from .manager import Manager, Pin, Tier  # noqa: E402
from .match import Match, MatchItem  # noqa: E402
from .namespace import Namespace  # noqa: E402
from .offer import Offer  # noqa: E402
from .queue import Operation, Queue  # noqa: E402
from .session import Session, Source  # noqa: E402
from .stats import (  # noqa: E402
    DeviceMoves, DeviceRow, Location, Locations, NodeRow, ScanRow, Share, Stats, TierCodecStats, TierStats,
)
from .store import Store  # noqa: E402

__version__: str = _native.kvbm_version_string()

__all__ = [
    "FOREVER", "NO_BLOCK", "NO_TIER", "Admit", "Blocks", "Cache", "CachePart", "CallerError", "ClosedError",
    "CodecMode", "Completion", "Component", "ComponentKind", "Context", "DeadlineError", "DeviceMemory", "DeviceMoves",
    "DeviceRow", "Duplicate", "Element", "Event", "EventKind", "ForkedError", "Form", "Geometry", "InternalError",
    "Keys", "KvbmError", "Location", "Locations", "Lookup", "Manager", "Match", "MatchItem", "MemoryKind", "MissError",
    "Namespace", "NoRoomError", "NodeRow", "Offer", "Op", "Operation", "Outcome", "Part", "PeerError", "Pin",
    "Position", "Priority", "Queue", "Quota", "ScanRow", "Session", "Shard", "Share", "ShareRole", "Source", "Stats",
    "Status", "Store", "Tensor", "Tier", "TierCodecStats", "TierNumber", "TierStats", "UnavailableError", "WaitLayers",
    "codec", "config_reference", "__version__",
]
