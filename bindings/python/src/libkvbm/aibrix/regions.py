"""AIBrix's memory regions, as blocks of attached caches: copies go from and to them without passing through Python.

A region is (slab, addr, length): a byte range of a large tensor. AIBrix cuts its slabs into regions of one block each,
so a slab is a cache with block i at i * block_bytes. A region that starts elsewhere (an engine's own tensor) is a block
of the same slab with another base offset.
"""
from __future__ import annotations

import threading
from typing import Any, NamedTuple, Optional, Sequence

from aibrix_kvcache.l2.connectors import ConnectorZeroCopyMemoryRegion
from aibrix_kvcache.memory import MemoryRegion

from ..block import Blocks
from ..cache import Cache, Tensor
from ..constants import MemoryKind
from ..errors import invalid
from ..manager import Manager
from ..namespace import Namespace

# Offsets within a block at which regions of one slab may start; more are attached for one operation each.
_MAX_OFFSETS = 64


class Place(NamedTuple):
    """Where a region is."""

    cache: Cache
    block: int


class Slabs:
    """The slabs that were registered. They are kept until close(). Thread: any."""

    def __init__(self, manager: Manager, ns: Namespace, block_bytes: int) -> None:
        self._manager = manager
        self._ns = ns
        self._block_bytes = block_bytes
        self._lock = threading.Lock()
        self._slabs: dict[int, Any] = {}
        self._attached: dict[tuple[int, int], Cache] = {}

    def register(self, slab: Any) -> None:
        """A contiguous tensor of bytes in host memory; again is fine."""
        with self._lock:
            self._slabs[slab.data_ptr()] = slab
            self._attach(slab, 0)

    def place(self, region: Any) -> Place:
        """Finds a region; CallerError where it is none that a block fits into."""
        if not isinstance(region, MemoryRegion):
            raise invalid(f"a {type(region).__name__} is no memory region: libkvbm copies between host memory and "
                          "itself, one region for each key")
        if region.length != self._block_bytes:
            raise invalid(f"the region has {region.length} bytes, and a block {self._block_bytes}")
        slab, addr = region.slab, region.addr
        block, offset = divmod(addr, self._block_bytes)
        start = slab.data_ptr()
        cache = self._attached.get((start, offset))
        if cache is None and start in self._slabs and len(self._attached) < _MAX_OFFSETS:
            with self._lock:
                cache = self._attach(self._slabs[start], offset)
        if cache is not None and 0 <= block < cache.n_blocks:
            return Place(cache, block)
        if not 0 <= addr <= slab.numel() * slab.itemsize - region.length:
            raise invalid(f"the region at {addr} is outside of its slab of {slab.numel() * slab.itemsize} bytes")
        return Place(self._cache(slab[addr:addr + region.length], 1), 0)

    def close(self) -> None:
        """Releases all slabs after the operations in flight."""
        with self._lock:
            caches = list(self._attached.values())
            self._attached.clear()
            self._slabs.clear()
        for cache in caches:
            cache.close()

    def _attach(self, slab: Any, offset: int) -> Optional[Cache]:
        key = (slab.data_ptr(), offset)
        n = (slab.numel() * slab.itemsize - offset) // self._block_bytes
        if n < 1:
            return None
        known = self._attached.get(key)
        if known is None or known.n_blocks != n:
            known = self._attached[key] = self._cache(slab[offset:] if offset else slab, n)
        return known

    def _cache(self, data: Any, n_blocks: int) -> Cache:
        if not data.is_contiguous() or data.itemsize != 1 or data.dim() != 1:
            raise invalid(f"the slab is a tensor {tuple(data.shape)} of {data.dtype}: plain bytes are expected")
        return Cache(self._manager, self._ns, n_blocks, tensors=[Tensor(data, page_bytes=self._block_bytes)],
                     memory=MemoryKind.HOST)


class Region(ConnectorZeroCopyMemoryRegion):  # type: ignore[misc]
    """A block of libkvbm's own memory in AIBrix's hands, from allocate() to seal() or drop(), or from acquire() to
    release(). What was acquired must not be written to. One that is forgotten ends with its last reference."""

    def __init__(self, key: bytes, blocks: Blocks, length: int) -> None:
        self.key = key
        self.blocks = blocks
        self._view = blocks.view(0)
        self._length = length
        self._addr = _address(self._view)

    @property
    def addr(self) -> int:
        return self._addr

    @property
    def length(self) -> int:
        return self._length

    def let_go(self) -> Blocks:
        """Ends the view; the blocks can be completed or released then."""
        self._view.release()
        return self.blocks


def _address(view: memoryview) -> int:
    import numpy  # aibrix-kvcache needs it

    return int(numpy.frombuffer(view, numpy.uint8).ctypes.data)


class Flight:
    """Keeps regions alive while the library reads or writes them. When AIBrix gives up on an operation it frees the
    regions at once, and would hand them to the next request while bytes of this one still arrive in them. The queue
    drops its reference to a flight with the operation's completion, and not before."""

    __slots__ = ("_regions", "__weakref__")

    def __init__(self, regions: Sequence[Any]) -> None:
        self._regions: list[Any] = []
        for region in regions:
            region.ref_up()
            self._regions.append(region)

    def end(self) -> None:
        """Twice is fine."""
        regions, self._regions = self._regions, []
        for region in regions:
            region.ref_down()

    def __del__(self) -> None:
        self.end()
