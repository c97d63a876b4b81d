"""Attached caches: an engine's own paged KV cache, described once."""
from __future__ import annotations

import asyncio
import concurrent.futures
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Sequence, Union, overload

from . import _native as raw
from . import _raw
from .codec import mode_by_name
from .constants import (FOREVER, CodecMode, Element, Form, Lookup, MemoryKind, Priority, WaitLayers, status_names,
                        status_of)
from .errors import KvbmError, invalid
from .geometry import Part, fill_shard
from .key import Position, as_keys, one_key, position_memory
from .match import Match, lookup_options
from .memory import as_u32, device_extent, extent_of, readable, shown, statuses
from .dispatch import Completion
from .queue import Operation, Queue, submit, submit_async, submit_future

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .key import KeysLike
    from .manager import Manager
    from .memory import Bytes, Integers
    from .namespace import Namespace


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of a CUDA device: `DeviceMemory(tensor.data_ptr(), tensor.nbytes, tensor)`. `owner` is kept as long as the
    cache that is made of it."""

    address: int
    bytes: int
    owner: object = None


@dataclass(frozen=True)
class Tensor:
    """A tensor of the engine: a writable, contiguous buffer, a tensor of the host or of a CUDA device (DLPack's protocol;
    torch, CuPy), or memory of a device by its address.
    `block_stride` is bytes from a block to the next, 0 = dense; `page_bytes` is for opaque forms: bytes of a block in
    this tensor."""

    data: Union[Bytes, DeviceMemory]
    block_stride: int = 0
    page_bytes: int = 0


Tensors = Sequence["Union[Tensor, Bytes, DeviceMemory]"]


@dataclass(frozen=True)
class CachePart:
    """How the engine holds one part of the model: tensors in the order that the form says, in a list, or the only one.
    An array of several dimensions is one tensor."""

    tensors: Union[Tensors, Tensor, Bytes, DeviceMemory]
    form: Form = Form.OPAQUE
    part: Part = Part()


class Outcome(NamedTuple):
    """Result of a blocking store or load: Status.OK or Status.PARTIAL, and a status for each item."""

    status: int
    item_status: memoryview

    def __repr__(self) -> str:
        return f"Outcome(status={self.status}, item_status={status_names(self.item_status)})"


class Cache:
    """Describes an engine's cache: `parts`, or for the usual single opaque part just `tensors`, each [n_blocks][bytes].
    `tensors` is a list, or the only tensor. The shape or size of a tensor must be a multiple of n_blocks.

    The caller owns the tensors. The cache keeps references to them, and they must not be resized, until the cache is
    closed or collected, which waits for operations that touch them. All tensors are in host memory, or all on one
    device (`memory`, `device`). With `MemoryKind.HOST` a tensor on a device is refused.
    For a cache on a device, calls take a `stream`: a CUstream or cudaStream_t as a number (0 is the legacy one). Work
    begins after the work now in the stream. Without a stream it begins at once, so the caller synchronises first.
    Thread: any.
    """

    __slots__ = ("_handle", "manager", "ns", "n_blocks", "n_parts", "units", "__weakref__")

    def __init__(self, manager: Manager, ns: Namespace, n_blocks: int, parts: Optional[Sequence[CachePart]] = None, *,
                 tensors: Union[Tensors, Tensor, Bytes, DeviceMemory, None] = None,
                 memory: MemoryKind = MemoryKind.AUTO, device: int = 0) -> None:
        if (parts is None) == (tensors is None):
            raise TypeError("give either parts or tensors")
        described = list(parts) if parts is not None else [CachePart(() if tensors is None else tensors)]
        kept: list[object] = []
        rows = raw.Memory(raw.kvbm_cache_part_t_size * max(len(described), 1))
        for i, part in enumerate(described):
            _describe(raw.kvbm_cache_part_t_at(rows, i), part, i, n_blocks, memory, kept)
        options = _raw.kvbm_cache_options_t()
        options.n_blocks, options.parts, options.n_parts = n_blocks, rows, len(described)
        options.memory, options.device = memory, device
        handle: raw.Handle = raw.kvbm_cache_attach(manager._handle, ns._handle, options)[1]
        handle.keep(kept)
        self._handle: Optional[raw.Handle] = handle
        self.manager = manager
        self.ns = ns
        self.n_blocks = n_blocks
        self.n_parts = len(described)
        self.units = ns.units

    # ---- lookup

    def lookup(self, keys: KeysLike, *, mode: Lookup = Lookup.PREFIX, host_only: bool = False, no_use: bool = False,
               unit_keys: Optional[KeysLike] = None, ask_nodes_ns: int = 0) -> Match:
        """Manager.lookup with the cache's own parts."""
        names = as_keys(keys)
        options, kept = lookup_options(mode, None, host_only, no_use, unit_keys, ask_nodes_ns)
        _, handle, hits = raw.kvbm_cache_lookup(self._handle, names, options)
        return Match(self.manager, names, handle, hits)

    # ---- store

    def store(self, keys: KeysLike, block_ids: Integers, *, priority: Priority = Priority.NORMAL,
              parent: Optional[Buffer] = None, unchained: bool = False, positions: Optional[Sequence[Position]] = None,
              timeout_ns: int = FOREVER, unit_keys: Optional[KeysLike] = None,
              stream: Optional[int] = None) -> Outcome:
        """Copies engine blocks into the host tier under their keys; waits until done. `block_ids` is
        [n_parts][n_keys * units], NO_BLOCK where the engine has none."""
        return _run(self._store(keys, block_ids, priority, parent, unchained, positions, timeout_ns, unit_keys, stream))

    def store_async(self, keys: KeysLike, block_ids: Integers, *, priority: Priority = Priority.NORMAL,
                    parent: Optional[Buffer] = None, unchained: bool = False,
                    positions: Optional[Sequence[Position]] = None, timeout_ns: int = FOREVER,
                    unit_keys: Optional[KeysLike] = None, stream: Optional[int] = None,
                    queue: Optional[Queue] = None) -> asyncio.Future[Completion]:
        """As store, awaited in asyncio: `await cache.store_async(keys, ids)`."""
        call = self._store(keys, block_ids, priority, parent, unchained, positions, timeout_ns, unit_keys, stream)
        return submit_async(queue or self.manager.queue(), call, statuses=call.statuses, keep=self._handle)

    def store_future(self, keys: KeysLike, block_ids: Integers, *, priority: Priority = Priority.NORMAL,
                     parent: Optional[Buffer] = None, unchained: bool = False,
                     positions: Optional[Sequence[Position]] = None, timeout_ns: int = FOREVER,
                     unit_keys: Optional[KeysLike] = None, stream: Optional[int] = None,
                     queue: Optional[Queue] = None) -> concurrent.futures.Future[Completion]:
        """As store, with a plain future."""
        call = self._store(keys, block_ids, priority, parent, unchained, positions, timeout_ns, unit_keys, stream)
        return submit_future(queue or self.manager.queue(), call, statuses=call.statuses, keep=self._handle)

    def store_submit(self, keys: KeysLike, block_ids: Integers, queue: Queue, *, user_data: Any = None,
                     priority: Priority = Priority.NORMAL, parent: Optional[Buffer] = None, unchained: bool = False,
                     positions: Optional[Sequence[Position]] = None, timeout_ns: int = FOREVER,
                     unit_keys: Optional[KeysLike] = None, stream: Optional[int] = None) -> Operation:
        """As store; the completion comes from queue.poll() or wait()."""
        call = self._store(keys, block_ids, priority, parent, unchained, positions, timeout_ns, unit_keys, stream)
        return submit(queue, call, user_data=user_data, statuses=call.statuses, keep=self._handle)

    # ---- load

    def load(self, match: Match, block_ids: Integers, *, first_key: int = 0, any_position: bool = False,
             first_layer: int = 0, n_layers: int = 0, keep_below: bool = False,
             positions: Optional[Sequence[Position]] = None, timeout_ns: int = FOREVER,
             compute_block_ns: int = 0, stream: Optional[int] = None) -> Outcome:
        """Loads matched blocks into the engine's blocks, verifies every byte, and waits until done. `block_ids` is
        [n_parts][n], `units` ids per key. A failed item leaves its blocks undefined and is never OK: compute it.
        `compute_block_ns` is the time in which the engine computes one of its blocks. With it only the leading blocks
        are loaded for which loading is faster, and a late load stops. Blocks left to compute are ERR_DEADLINE, and the
        outcome is PARTIAL."""
        return _run(self._load(match, block_ids, first_key, any_position, first_layer, n_layers, keep_below, positions,
                               timeout_ns, compute_block_ns, stream, WaitLayers.OFF))

    def load_async(self, match: Match, block_ids: Integers, *, first_key: int = 0, any_position: bool = False,
                   first_layer: int = 0, n_layers: int = 0, keep_below: bool = False,
                   positions: Optional[Sequence[Position]] = None, timeout_ns: int = FOREVER,
                   compute_block_ns: int = 0, stream: Optional[int] = None,
                   queue: Optional[Queue] = None) -> asyncio.Future[Completion]:
        """As load, awaited in asyncio."""
        call = self._load(match, block_ids, first_key, any_position, first_layer, n_layers, keep_below, positions,
                          timeout_ns, compute_block_ns, stream, WaitLayers.OFF)
        return submit_async(queue or self.manager.queue(), call, statuses=call.statuses, keep=self._handle)

    def load_future(self, match: Match, block_ids: Integers, *, first_key: int = 0, any_position: bool = False,
                    first_layer: int = 0, n_layers: int = 0, keep_below: bool = False,
                    positions: Optional[Sequence[Position]] = None, timeout_ns: int = FOREVER,
                    compute_block_ns: int = 0, stream: Optional[int] = None,
                    queue: Optional[Queue] = None) -> concurrent.futures.Future[Completion]:
        """As load, with a plain future."""
        call = self._load(match, block_ids, first_key, any_position, first_layer, n_layers, keep_below, positions,
                          timeout_ns, compute_block_ns, stream, WaitLayers.OFF)
        return submit_future(queue or self.manager.queue(), call, statuses=call.statuses, keep=self._handle)

    def load_submit(self, match: Match, block_ids: Integers, queue: Queue, *, user_data: Any = None, first_key: int = 0,
                    any_position: bool = False, first_layer: int = 0, n_layers: int = 0, keep_below: bool = False,
                    positions: Optional[Sequence[Position]] = None, timeout_ns: int = FOREVER,
                    compute_block_ns: int = 0, stream: Optional[int] = None,
                    wait_layers: Union[WaitLayers, bool] = WaitLayers.OFF) -> Operation:
        """As load; the completion comes from queue.poll() or wait(). Unless `wait_layers` is OFF layers land in their
        order, and wait_layer makes streams wait for them; WaitLayers says how. True is ON_DEVICE."""
        call = self._load(match, block_ids, first_key, any_position, first_layer, n_layers, keep_below, positions,
                          timeout_ns, compute_block_ns, stream, wait_layers)
        return submit(queue, call, user_data=user_data, statuses=call.statuses, keep=self._handle)

    def wait_layer(self, operation: Operation, layer: int, stream: int) -> None:
        """Makes `stream` wait for a layer of a load_submit with wait_layers. That it goes on does not say that the load
        was right: what was computed behind it counts only once the completion has said so. With WaitLayers.ISSUED it
        blocks until the layer was given to the driver or the load has ended, without the GIL; Ctrl-C is seen then."""
        raw.kvbm_cache_wait_layer(self._handle, operation.number, layer, stream)

    # ---- coding of engine blocks

    def code_room(self, n_blocks: int, *, part: int = 0, element: Element = Element.BYTES, row: int = 0,
                  rows: int = 0) -> int:
        """Bytes that encode needs to write into for so many engine blocks, whatever is in them and whichever the mode;
        `element`, `row` and `rows` as they are given to it."""
        options = _code_options(part, 0, None, element, row, rows)
        needed: int = raw.kvbm_cache_code_room(self._handle, n_blocks, options)[1]
        return needed

    @overload
    def encode(self, block_ids: Integers, mode: Union[str, CodecMode] = ..., *, part: int = ..., into: None = ...,
               stream: Optional[int] = ..., element: Element = ..., row: int = ..., rows: int = ...) -> bytes: ...
    @overload
    def encode(self, block_ids: Integers, mode: Union[str, CodecMode] = ..., *, part: int = ..., into: Bytes,
               stream: Optional[int] = ..., element: Element = ..., row: int = ..., rows: int = ...) -> int: ...
    def encode(self, block_ids: Integers, mode: Union[str, CodecMode] = "default", *, part: int = 0,
               into: Optional[Bytes] = None, stream: Optional[int] = None, element: Element = Element.BYTES, row: int = 0,
               rows: int = 0) -> Union[bytes, int]:
        """Codes engine blocks of one part into one buffer (libkvbm.codec reads it): on a device by its kernels, to the
        same bytes as on the processor. Nothing of it enters a tier. `element`, `row` and `rows` are for opaque parts, as
        in codec.encode. With `into`, which has code_room() bytes, it is coded there and the result is how many it took."""
        ids = as_u32(block_ids, "block_ids")
        number = mode_by_name(mode) if isinstance(mode, str) else mode
        options = _code_options(part, 0, stream, element, row, rows)
        n = ids.nbytes // 4
        if into is not None:
            return int(raw.kvbm_cache_encode(self._handle, ids, n, number, options, extent_of(into)[0])[1])
        needed: int = raw.kvbm_cache_code_room(self._handle, n, options)[1]
        made: bytes
        _, made, size = raw.kvbm_cache_encode(self._handle, ids, n, number, options, needed)
        return made[:size]

    def decode(self, coded: Bytes, block_ids: Integers, *, part: int = 0, allow_lossy: bool = False,
               stream: Optional[int] = None, element: Element = Element.BYTES, row: int = 0, rows: int = 0) -> None:
        """Decodes the result of encode into engine blocks; every byte is verified before it is written. A lossy buffer
        is refused (UnavailableError) unless it is allowed. Do not store lossy blocks under keys for which readers
        expect exact bytes. After a MissError the blocks are undefined: compute them."""
        ids = as_u32(block_ids, "block_ids")
        flags = raw.KVBM_CODEC_ALLOW_LOSSY if allow_lossy else 0
        raw.kvbm_cache_decode(self._handle, readable(coded, "coded"), ids, ids.nbytes // 4,
                              _code_options(part, flags, stream, element, row, rows))

    # ---- the object

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Waits for operations that touch the tensors, then releases the tensors. May be called twice."""
        self._handle = None

    def __repr__(self) -> str:
        return shown(self, self.closed, n_blocks=self.n_blocks, n_parts=self.n_parts, units=self.units)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def block_list(self, block_ids: Integers) -> tuple[memoryview, int]:
        """The ids as a buffer, and how many there are for each part."""
        ids = as_u32(block_ids, "block_ids")
        n = ids.nbytes // 4
        if n % self.n_parts != 0:
            raise invalid(f"{n} block ids cannot be shared by {self.n_parts} parts")
        return ids, n // self.n_parts

    def _store(self, keys: KeysLike, block_ids: Integers, priority: Priority, parent: Optional[Buffer], unchained: bool,
               positions: Optional[Sequence[Position]], timeout_ns: int, unit_keys: Optional[KeysLike],
               stream: Optional[int]) -> _Call:
        names = as_keys(keys)
        n = len(names)
        ids, each = self.block_list(block_ids)
        if each != n * self.units:
            raise invalid(f"{n} keys of {self.units} engine blocks need {n * self.units} ids a part, got {each}")
        options = _raw.kvbm_store_options_t()
        before = None if parent is None else one_key(parent)
        units = None if unit_keys is None else as_keys(unit_keys)
        if units is not None and len(units) != n * self.units:
            raise invalid(f"{n} keys have {n * self.units} unit keys, got {len(units)}")
        where = position_memory(positions, n)
        options.priority, options.unchained, options.timeout_ns = priority, int(unchained), timeout_ns
        options.parent, options.positions = before, where
        options.unit_keys = units if n else None
        options.stream, options.has_stream = stream or 0, int(stream is not None)
        cache = self._handle

        def call(queue: Optional[raw.Handle], token: int) -> int:
            return raw.kvbm_cache_store(cache, names, ids, n, options, queue, token)

        return _Call(call, options, statuses(n), n, (before, units, where))

    def _load(self, match: Match, block_ids: Integers, first_key: int, any_position: bool, first_layer: int,
              n_layers: int, keep_below: bool, positions: Optional[Sequence[Position]], timeout_ns: int,
              compute_block_ns: int, stream: Optional[int], wait_layers: Union[WaitLayers, bool]) -> _Call:
        ids, each = self.block_list(block_ids)
        n = (each + self.units - 1) // self.units
        options = _raw.kvbm_load_options_t()
        where = position_memory(positions, n)
        options.first_key, options.any_position, options.keep_below = first_key, int(any_position), int(keep_below)
        options.first_layer, options.n_layers, options.timeout_ns = first_layer, n_layers, timeout_ns
        options.positions, options.compute_block_ns = where, compute_block_ns
        options.stream, options.has_stream = stream or 0, int(stream is not None)
        options.wait_layers = int(wait_layers)
        cache, found = self._handle, match._found()

        def call(queue: Optional[raw.Handle], token: int) -> int:
            return raw.kvbm_cache_load(cache, found, ids, each, options, queue, token)

        return _Call(call, options, statuses(n), n, (where,))


def _code_options(part: int, flags: int, stream: Optional[int], element: Element, row: int, rows: int) -> raw.Struct:
    options: raw.Struct = _raw.kvbm_cache_code_options_t()
    options.part, options.flags = part, flags
    options.element, options.row_elements, options.rows = element, row, rows
    options.stream, options.has_stream = stream or 0, int(stream is not None)
    return options


class _Call:
    """A submission that is prepared: the raw call, its statuses, and what its options point to."""

    __slots__ = ("_call", "_options", "statuses", "n", "_kept")

    def __init__(self, call: Callable[[Optional[raw.Handle], int], int], options: raw.Struct, statuses: raw.Memory,
                 n: int, kept: tuple[object, ...]) -> None:
        self._call = call
        self._options = options
        self.statuses = statuses
        self.n = n
        self._kept = kept

    def __call__(self, queue: Optional[raw.Handle], token: int, number: Optional[raw.Memory]) -> int:
        self._options.item_status = self.statuses
        self._options.out_operation = number
        return self._call(queue, token)


def _run(call: _Call) -> Outcome:
    items = memoryview(call.statuses)[:call.n]
    try:
        return Outcome(status_of(call(None, 0, None)), items)
    except KvbmError as error:
        error.item_status = items
        raise


def _listed(tensors: object) -> list[Any]:
    """An array of several dimensions is one tensor; its rows are not tensors."""
    if isinstance(tensors, (list, tuple)):
        return list(tensors)
    if isinstance(tensors, (Tensor, DeviceMemory)) or hasattr(tensors, "__dlpack__") or device_extent(tensors) is not None:
        return [tensors]
    try:
        memoryview(tensors)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return list(tensors)  # type: ignore[call-overload, no-any-return]
    return [tensors]


def _page_bytes(tensor: Tensor, size: int, n_blocks: int, which: str) -> int:
    """Of a tensor of an opaque part, [n_blocks][bytes]."""
    if tensor.page_bytes or tensor.block_stride:
        return tensor.page_bytes or tensor.block_stride
    shape = tuple(getattr(tensor.data, "shape", ()))
    if size % n_blocks != 0 or (len(shape) > 1 and shape[0] % n_blocks != 0):
        there = f"the shape {shape}" if len(shape) > 1 else f"{size} bytes"
        raise invalid(f"{which} has {there}, which is not {n_blocks} blocks of one size: give as many blocks first, or "
                      "Tensor(..., page_bytes=...)")
    return size // n_blocks


def _describe(item: raw.Struct, part: CachePart, number: int, n_blocks: int, place: MemoryKind, kept: list[object]) -> None:
    item.part.component = part.part.component
    fill_shard(item.part.shard, part.part.shard)
    item.form = part.form
    tensors = _listed(part.tensors)
    memory = raw.Memory(raw.kvbm_tensor_t_size * max(len(tensors), 1))
    item.tensors, item.n_tensors = memory, len(tensors)
    kept.append(memory)
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            tensor = Tensor(tensor)
        owner: object = tensor.data
        if isinstance(tensor.data, DeviceMemory):
            if place == MemoryKind.HOST:
                raise invalid(f"tensor {i} of part {number} is DeviceMemory, and memory is HOST: an address of a device is none of "
                              "the host")
            address, size = tensor.data.address, tensor.data.bytes
        elif place != MemoryKind.HOST and (extent := device_extent(tensor.data)) is not None:
            address, size = extent
        else:
            owner, address, size = extent_of(tensor.data)
        row = raw.kvbm_tensor_t_at(memory, i)
        row.data, row.bytes, row.block_stride = address, size, tensor.block_stride
        row.page_bytes = tensor.page_bytes
        if part.form == Form.OPAQUE and n_blocks > 0:
            row.page_bytes = _page_bytes(tensor, size, n_blocks, f"tensors[{i}]")
        kept.append(owner)
