"""msgpack and ZeroMQ, from the installed packages. Imported only if needed."""
from __future__ import annotations

from typing import Any, Callable

try:
    import zmq
except ImportError as missing:
    raise ImportError("libkvbm.events needs pyzmq: pip install pyzmq msgspec") from missing


class PackingError(ValueError):
    """Bytes that are no msgpack."""


def _choose() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    try:
        import msgspec
    except ImportError:
        return _choose_msgpack()

    def unpack(data: bytes) -> Any:
        try:
            return msgspec.msgpack.decode(data)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise PackingError(str(error)) from None

    return msgspec.msgpack.encode, unpack


def _choose_msgpack() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    try:
        import msgpack
    except ImportError as missing:
        raise ImportError("libkvbm.events needs msgspec or msgpack: pip install msgspec") from missing

    def unpack(data: bytes) -> Any:
        try:
            return msgpack.unpackb(data, raw=False, strict_map_key=False)
        except (msgpack.UnpackException, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise PackingError(str(error)) from None

    return msgpack.packb, unpack


pack, unpack = _choose()

__all__ = ["PackingError", "pack", "unpack", "zmq"]
