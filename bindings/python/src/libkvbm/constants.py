"""The values of kvbm.h, as enumerations. Their numbers are the header's, read through the raw layer."""
from __future__ import annotations

from enum import IntEnum
from typing import Iterable

from . import _native as raw

FOREVER: int = raw.KVBM_FOREVER
"""No deadline."""
NO_BLOCK: int = raw.KVBM_NO_BLOCK
"""In a list of block ids: none."""
NO_TIER: int = raw.KVBM_NO_TIER
"""The tier of a key that missed."""


class _Named(IntEnum):
    """Prints as its name, also within a text."""

    def __str__(self) -> str:
        return self.name

    __format__ = object.__format__  # type: ignore[assignment]


class TierNumber(int):
    """A tier by its number, which is all that it is to the library. It prints as what it is: "host", "tier 1", "no tier"."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "host" if self == 0 else "no tier" if self == NO_TIER else f"tier {int(self)}"

    __str__ = __repr__


class Status(_Named):
    """Statuses that are no errors, and those of the items of a batch."""

    OK = raw.KVBM_OK
    PARTIAL = raw.KVBM_PARTIAL
    INVALID = raw.KVBM_ERR_INVALID
    STALE = raw.KVBM_ERR_STALE
    FOREIGN = raw.KVBM_ERR_FOREIGN
    STATE = raw.KVBM_ERR_STATE
    FORKED = raw.KVBM_ERR_FORKED
    CONFIG = raw.KVBM_ERR_CONFIG
    IN_USE = raw.KVBM_ERR_IN_USE
    EXISTS = raw.KVBM_ERR_EXISTS
    NO_ROOM = raw.KVBM_ERR_NO_ROOM
    QUOTA = raw.KVBM_ERR_QUOTA
    AGAIN = raw.KVBM_ERR_AGAIN
    NO_MEMORY = raw.KVBM_ERR_NO_MEMORY
    DISK_FULL = raw.KVBM_ERR_DISK_FULL
    LIMIT = raw.KVBM_ERR_LIMIT
    DEADLINE = raw.KVBM_ERR_DEADLINE
    CANCELLED = raw.KVBM_ERR_CANCELLED
    OWNER_GONE = raw.KVBM_ERR_OWNER_GONE
    CLOSED = raw.KVBM_ERR_CLOSED
    MISS = raw.KVBM_ERR_MISS
    DAMAGED = raw.KVBM_ERR_DAMAGED
    MISMATCH = raw.KVBM_ERR_MISMATCH
    UNSUPPORTED = raw.KVBM_ERR_UNSUPPORTED
    VERSION = raw.KVBM_ERR_VERSION
    PERMISSION = raw.KVBM_ERR_PERMISSION
    INTERNAL = raw.KVBM_ERR_INTERNAL
    IO = raw.KVBM_ERR_IO
    TIER_DISABLED = raw.KVBM_ERR_TIER_DISABLED


class Op(_Named):
    STORE = raw.KVBM_OP_STORE
    LOAD = raw.KVBM_OP_LOAD
    PREFETCH = raw.KVBM_OP_PREFETCH
    OFFLOAD = raw.KVBM_OP_OFFLOAD
    OFFER = raw.KVBM_OP_OFFER
    RECEIVE = raw.KVBM_OP_RECEIVE
    LAYER = raw.KVBM_OP_LAYER


class EventKind(_Named):
    STORED = raw.KVBM_EVENT_STORED
    REMOVED = raw.KVBM_EVENT_REMOVED
    CLEARED = raw.KVBM_EVENT_CLEARED
    DISABLED = raw.KVBM_EVENT_DISABLED


class Element(IntEnum):
    BYTES = raw.KVBM_ELEMENT_BYTES
    BF16 = raw.KVBM_ELEMENT_BF16
    FP16 = raw.KVBM_ELEMENT_FP16
    FP32 = raw.KVBM_ELEMENT_FP32
    FP8_E4M3 = raw.KVBM_ELEMENT_FP8_E4M3
    FP8_E5M2 = raw.KVBM_ELEMENT_FP8_E5M2
    INT8 = raw.KVBM_ELEMENT_INT8


class ComponentKind(IntEnum):
    ATTENTION = raw.KVBM_COMPONENT_ATTENTION
    WINDOW = raw.KVBM_COMPONENT_WINDOW
    LATENT = raw.KVBM_COMPONENT_LATENT
    STATE = raw.KVBM_COMPONENT_STATE


class Admit(IntEnum):
    ALL = raw.KVBM_ADMIT_ALL
    ON_EVICTION = raw.KVBM_ADMIT_ON_EVICTION
    AFTER_USES = raw.KVBM_ADMIT_AFTER_USES
    FREQUENCY = raw.KVBM_ADMIT_FREQUENCY
    ON_REQUEST = raw.KVBM_ADMIT_ON_REQUEST


class Quota(IntEnum):
    EVICT = raw.KVBM_QUOTA_EVICT
    REJECT = raw.KVBM_QUOTA_REJECT


class Duplicate(IntEnum):
    REUSE = raw.KVBM_DUPLICATE_REUSE
    KEEP = raw.KVBM_DUPLICATE_KEEP


class Priority(IntEnum):
    NORMAL = raw.KVBM_PRIORITY_NORMAL
    ONE_SHOT = raw.KVBM_PRIORITY_ONE_SHOT
    CONTINUES = raw.KVBM_PRIORITY_CONTINUES
    KEEP = raw.KVBM_PRIORITY_KEEP


class Lookup(IntEnum):
    PREFIX = raw.KVBM_LOOKUP_PREFIX
    EACH = raw.KVBM_LOOKUP_EACH
    ANY = raw.KVBM_LOOKUP_ANY


class ShareRole(IntEnum):
    OFF = raw.KVBM_SHARE_OFF
    OWNER = raw.KVBM_SHARE_OWNER
    CLIENT = raw.KVBM_SHARE_CLIENT
    NO_OWNER = raw.KVBM_SHARE_NO_OWNER


class CodecMode(IntEnum):
    """Coding modes. Below 16 lossless, 16 and above lossy."""

    OFF = raw.KVBM_CODEC_OFF
    FAST = raw.KVBM_CODEC_FAST
    DEFAULT = raw.KVBM_CODEC_DEFAULT
    MAX = raw.KVBM_CODEC_MAX
    ZSTD = raw.KVBM_CODEC_ZSTD
    FP8_E4M3 = raw.KVBM_CODEC_FP8_E4M3
    FP8_E5M2 = raw.KVBM_CODEC_FP8_E5M2
    INT8 = raw.KVBM_CODEC_INT8
    INT6 = raw.KVBM_CODEC_INT6
    INT4 = raw.KVBM_CODEC_INT4
    INT8_CODED = raw.KVBM_CODEC_INT8_CODED
    INT6_CODED = raw.KVBM_CODEC_INT6_CODED
    INT4_CODED = raw.KVBM_CODEC_INT4_CODED
    DELTA = raw.KVBM_CODEC_DELTA


class MemoryKind(IntEnum):
    """Where the tensors of an attached cache lie."""

    AUTO = raw.KVBM_MEMORY_AUTO
    HOST = raw.KVBM_MEMORY_HOST
    CUDA = raw.KVBM_MEMORY_CUDA


class WaitLayers(IntEnum):
    """How streams wait for the layers of a load (Cache.wait_layer)."""

    OFF = raw.KVBM_WAIT_LAYERS_OFF
    ON_DEVICE = raw.KVBM_WAIT_LAYERS_ON_DEVICE
    """On the device, also for a layer that was not given to the driver yet. The CPU never blocks; until the load has
    ended it must make no call of the driver that waits for the stream."""
    ISSUED = raw.KVBM_WAIT_LAYERS_ISSUED
    """wait_layer blocks until the layer was given to the driver. Any call may follow. Works on every device."""


class Form(IntEnum):
    """How an engine orders its cache; kvbm_cache.h draws the axes of each."""

    NHD = raw.KVBM_FORM_NHD
    HND = raw.KVBM_FORM_HND
    BLOCKS_NHD = raw.KVBM_FORM_BLOCKS_NHD
    BLOCKS_HND = raw.KVBM_FORM_BLOCKS_HND
    PACKED_NHD = raw.KVBM_FORM_PACKED_NHD
    PACKED_HND = raw.KVBM_FORM_PACKED_HND
    SPLIT_NHD = raw.KVBM_FORM_SPLIT_NHD
    SPLIT_HND = raw.KVBM_FORM_SPLIT_HND
    LAYERS_NHD = raw.KVBM_FORM_LAYERS_NHD
    LAYERS_HND = raw.KVBM_FORM_LAYERS_HND
    CROSS_NHD = raw.KVBM_FORM_CROSS_NHD
    CROSS_HND = raw.KVBM_FORM_CROSS_HND
    CROSS_PACKED_LNH = raw.KVBM_FORM_CROSS_PACKED_LNH
    CROSS_PACKED_LHN = raw.KVBM_FORM_CROSS_PACKED_LHN
    CROSS_PACKED_HLN = raw.KVBM_FORM_CROSS_PACKED_HLN
    HEADS_PACKED = raw.KVBM_FORM_HEADS_PACKED
    SGLANG_LAYER_FIRST = raw.KVBM_FORM_SGLANG_LAYER_FIRST
    SGLANG_PAGE_FIRST = raw.KVBM_FORM_SGLANG_PAGE_FIRST
    SGLANG_PAGE_FIRST_DIRECT = raw.KVBM_FORM_SGLANG_PAGE_FIRST_DIRECT
    SGLANG_PAGE_HEAD = raw.KVBM_FORM_SGLANG_PAGE_HEAD
    OPAQUE = raw.KVBM_FORM_OPAQUE


def status_of(number: int) -> int:
    """A Status, or the number of one that this version does not know."""
    try:
        return Status(number)
    except ValueError:
        return number


def op_of(number: int) -> int:
    """An Op, or the number of one that this version does not know."""
    try:
        return Op(number)
    except ValueError:
        return number


def status_names(items: Iterable[int], most: int = 16) -> str:
    """The statuses of a batch by their names, for a text."""
    names = [str(status_of(item)) for item in items]
    return f"[{', '.join(names[:most])}{', ...' if len(names) > most else ''}]"
