"""Buffers that go into the library: accepted types, and references to them.

An object with the buffer protocol (bytearray, array, memoryview, numpy) is used in place; so are tensors of libraries
that speak DLPack and live in host memory (torch). Lists of integers are copied once.
"""
from __future__ import annotations

import re
import sys
from array import array
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Protocol, Sequence, Union

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
_MOST_U32 = 0xFFFFFFFF
assert array("I").itemsize == 4 and sys.byteorder == "little"


def extent_of(tensor: Bytes) -> tuple[memoryview, int, int]:
    """(what keeps it, address, bytes) of a contiguous, writable buffer or host tensor; nothing is copied."""
    if isinstance(tensor, (int, str)):
        raise TypeError(f"expected a buffer or a tensor, got {type(tensor).__name__}")
    view = memoryview(_from_dlpack(tensor)) if _is_dlpack(tensor) else memoryview(tensor)  # type: ignore[arg-type]
    _refuse_objects(view, "a tensor")
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
    _refuse_objects(view, what)
    if not view.c_contiguous:
        raise BufferError(f"{what}: the buffer is not contiguous")
    return view


def _refuse_objects(view: memoryview, what: str) -> None:
    """Bytes of a block mean nothing as references to Python objects: using them would end the interpreter."""
    if set(re.sub(":[^:]*:", "", view.format)) & set("OP"):
        raise TypeError(f"{what}: the buffer holds references to Python objects (format {view.format!r}), not numbers")


def as_u32(values: Integers, what: str) -> memoryview:
    """32-bit integers (token or block ids): a buffer of them as it is; other integers, 64-bit ones above all, and lists
    are copied. A number that is negative or too large raises OverflowError. The view that is returned also keeps the
    buffer from changing its length between a check and the call."""
    if isinstance(values, (list, tuple, range)):
        return _copied(values, what)
    if _is_dlpack(values):
        return _dlpack_integers(values, what)
    try:
        view = memoryview(values)  # type: ignore[arg-type]
    except TypeError:
        if isinstance(values, (str, int)):
            raise TypeError(f"{what}: expected integers, got {type(values).__name__}") from None
        return _copied(list(values), what)  # type: ignore[arg-type]
    kind = view.format.lstrip("@=<")
    if kind not in tuple("hHiIlLqQnN"):  # bytes are not a list of numbers
        raise TypeError(f"{what}: expected integers, got items of {view.itemsize} bytes, format {view.format!r}")
    if view.itemsize == 4:
        return view if kind.isupper() else _not_negative(view, what)
    if view.itemsize == 8:
        return _narrowed(view.tobytes(), what)
    return _copied(view.cast("B").cast(kind).tolist(), what)  # type: ignore[call-overload]


def _copied(values: Sequence[Any], what: str) -> memoryview:
    try:
        return memoryview(array("I", values))
    except OverflowError:
        pass
    except TypeError:
        raise TypeError(f"{what}: expected integers") from None
    raise _out_of_range(next(i for i, value in enumerate(values) if not 0 <= value <= _MOST_U32), values, what)


def _out_of_range(i: int, values: Any, what: str) -> OverflowError:
    return OverflowError(f"{what}[{i}] is {values[i]}, which is not between 0 and {_MOST_U32}")


def _not_negative(view: memoryview, what: str) -> memoryview:
    """Returns the view of signed 32-bit integers, of which none may be negative."""
    if view.tobytes()[3::4].isascii():
        return view
    values = array("i", view.tobytes())
    raise _out_of_range(next(i for i, value in enumerate(values) if value < 0), values, what)


def _narrowed(data: bytes, what: str) -> memoryview:
    """Of 64-bit integers, the lower halves; the upper ones must be zero."""
    halves = array("I", data)
    high = halves[1::2].tobytes()
    if high.count(0) == len(high):
        return memoryview(halves[0::2])
    values = array("q", data)
    raise _out_of_range(next(i for i, value in enumerate(values) if not 0 <= value <= _MOST_U32), values, what)


def shown(item: object, ended: bool, **facts: object) -> str:
    """The repr() of an object of the library."""
    words = [f"{name}={value!r}" for name, value in facts.items()] + (["closed"] if ended else [])
    return f"<libkvbm.{' '.join([type(item).__name__, *words])}>"


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
    # Objects with both protocols (numpy) use the buffer protocol: it also works without DLPack support.
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
    kind = str(tensor.dtype)
    if view.nbytes == n * 4 and "int32" in kind:
        return view.cast("I") if "uint32" in kind else _not_negative(view.cast("I"), what)
    if view.nbytes == n * 8 and "int64" in kind:
        return _narrowed(view.tobytes(), what)
    raise TypeError(f"{what}: expected integers of 32 or 64 bits, got {tensor.dtype}")
