"""Buffers that go into the library: who holds them, and what is accepted as what.

Anything with the buffer protocol (bytearray, array, memoryview, numpy) is used in place; so are tensors of libraries
that speak DLPack and live in host memory (torch). Lists of integers are copied once.
"""
from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Protocol, Union

from . import _native as raw
from .errors import error_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    class SupportsDlpack(Protocol):
        def __dlpack__(self) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...

    Bytes = Union[Buffer, SupportsDlpack]
    Integers = Union[Buffer, SupportsDlpack, Iterable[int]]

_HOST_DEVICES = (1, 3, 11)  # kDLCPU, and the pinned host memory of CUDA and ROCm
_CUDA = 2  # kDLCUDA
assert array("I").itemsize == 4


def extent_of(tensor: Bytes) -> tuple[memoryview, int, int]:
    """(what keeps it, address, bytes) of a contiguous, writable buffer or host tensor; nothing is copied."""
    if isinstance(tensor, (int, str)):
        raise TypeError(f"expected a buffer or a tensor, got {type(tensor).__name__}")
    view = memoryview(_from_dlpack(tensor)) if _is_dlpack(tensor) else memoryview(tensor)  # type: ignore[arg-type]
    if view.readonly:
        raise BufferError("the library writes into the engine's memory: the buffer must not be read-only")
    if not view.c_contiguous:
        raise BufferError("the buffer is not contiguous")
    address, size = raw.buffer_extent(view)
    return view, address, size


def device_extent(tensor: object) -> Optional[tuple[int, int]]:
    """(address, bytes) of a contiguous tensor in the memory of a CUDA device (torch's, or one with the CUDA array
    interface), None for anything else. The device is asked for nothing."""
    where = getattr(tensor, "__dlpack_device__", None)
    if where is None or where()[0] != _CUDA:
        return None
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "is_contiguous"):
        address, size, whole = tensor.data_ptr(), getattr(tensor, "nbytes"), tensor.is_contiguous()
    elif (interface := getattr(tensor, "__cuda_array_interface__", None)) is not None:
        address, size, whole = interface["data"][0], getattr(tensor, "nbytes"), interface.get("strides") is None
    else:
        return None
    if not whole:
        raise BufferError("the tensor is not contiguous")
    return int(address), int(size)


def readable(source: Bytes, what: str) -> memoryview:
    """A contiguous buffer or host tensor, in place; it may be read-only."""
    if isinstance(source, (int, str)):
        raise TypeError(f"{what}: expected a buffer or a tensor, got {type(source).__name__}")
    view = memoryview(_from_dlpack(source)) if _is_dlpack(source) else memoryview(source)  # type: ignore[arg-type]
    if not view.c_contiguous:
        raise BufferError(f"{what}: the buffer is not contiguous")
    return view


def as_u32(values: Integers, what: str) -> memoryview:
    """32-bit integers (token or block ids): a buffer as it is, or a list, copied. The view that is returned also keeps
    the buffer from changing its length between a check and the call."""
    if isinstance(values, (list, tuple, range)):
        return memoryview(array("I", values))
    if _is_dlpack(values):
        return _dlpack_integers(values, what)
    try:
        view = memoryview(values)  # type: ignore[arg-type]
    except TypeError:
        if isinstance(values, (str, int)):
            raise TypeError(f"{what}: expected integers, got {type(values).__name__}") from None
        return memoryview(array("I", values))  # type: ignore[arg-type]
    if view.itemsize != 4 or view.format.strip("@=<") not in ("i", "I", "l", "L"):
        raise TypeError(f"{what}: expected 32-bit integers, got items of {view.itemsize} bytes, format {view.format!r}")
    return view


def text(value: Optional[str], what: str) -> Optional[bytes]:
    """A zero-terminated string for the library; None stays None."""
    if value is None:
        return None
    data = value.encode()
    if b"\0" in data:
        raise ValueError(f"{what} has a zero character in it")
    return data


def read_text(ask: Callable[..., Any], *subject: Any) -> str:
    """The text of a two-phase call, which may grow between the calls."""
    size = 4096
    while True:
        room = raw.Memory(size)
        needed: int = ask(*subject, room)[1]
        if needed < size:
            return bytes(memoryview(room)[:needed]).decode(errors="replace")
        size = needed + 1024


def statuses(n: int) -> raw.Memory:
    """Room for n item statuses, which the library writes before the completion can be polled."""
    return raw.Memory(n * 4, format="i")


def _is_dlpack(value: object) -> bool:
    # What has both protocols (numpy) is taken by the buffer protocol: it also works without DLPack support.
    if not hasattr(value, "__dlpack__"):
        return False
    try:
        memoryview(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return True
    return False


def _from_dlpack(tensor: Any) -> raw.Dlpack:
    device, number = tensor.__dlpack_device__()
    if device not in _HOST_DEVICES:
        raise error_of(raw.KVBM_ERR_UNSUPPORTED,
                       f"the tensor is on device ({device}, {number}); the library reads and writes host memory")
    return raw.Dlpack(tensor.__dlpack__())


def _dlpack_integers(tensor: Any, what: str) -> memoryview:
    held = _from_dlpack(tensor)
    n = 1
    for size in tensor.shape:
        n *= int(size)
    view = memoryview(held)
    if view.nbytes != n * 4 or "int32" not in str(tensor.dtype):
        raise TypeError(f"{what}: expected 32-bit integers, got {tensor.dtype}")
    return view.cast("I")
