"""Encodes and decodes KV in the caller's own buffers, without a context or manager.

    coded = codec.encode(page, "default", element=Element.BF16, row=heads * dim)
    page = codec.decode(coded)

A coded buffer describes itself and has a hash of each part. So decode returns the right bytes or raises MissError,
never wrong KV, whatever happened to the buffer. Hashes detect faults, not forgery. Buffers are objects with the buffer
protocol, or host tensors with DLPack (torch); they are read and written in place. The GIL is released during the work.
Thread: any.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional, Union, overload

from . import _native as raw
from . import _raw
from .constants import CodecMode, Element
from .errors import invalid
from .memory import extent_of, readable, text

if TYPE_CHECKING:
    from .memory import Bytes

__all__ = ["CodecInfo", "decode", "encode", "inspect", "kernel", "mode_by_name", "room"]


class CodecInfo(NamedTuple):
    """Description of a coded buffer, read from its own table."""

    mode: CodecMode  # that was asked for
    element: Element
    row: int  # elements of a row; 0 = not known
    rows: int  # rows after which other channels begin; 0 = never
    lossy: bool  # decoding needs allow_lossy
    leaves: int
    raw_leaves: int  # leaves stored unchanged
    raw_bytes: int  # size of the decoded bytes
    coded_bytes: int
    error_ppb: int  # lossy: sum of squared differences / sum of squared values, in 1e-9


def mode_by_name(name: str) -> CodecMode:
    """"default" -> CodecMode.DEFAULT: names are the library's own, in lower case."""
    return CodecMode(raw.kvbm_codec_mode_by_name(text(name, "mode") or b"")[1])


def kernel() -> str:
    """Which implementation runs on this processor: "avx512", "bmi2", "portable". All give the same bytes."""
    return raw.kvbm_codec_kernel()


def room(raw_bytes: int, *, element: Element = Element.BYTES, row: int = 0, rows: int = 0) -> int:
    """Bytes that encode needs to write into, whatever is coded and whichever the mode."""
    needed: int = raw.kvbm_codec_room(raw_bytes, _form(element, row, rows))[1]
    return needed


@overload
def encode(buffer: Bytes, mode: Union[str, CodecMode] = ..., *, element: Element = ..., row: int = ..., rows: int = ...,
           into: None = ...) -> bytes: ...
@overload
def encode(buffer: Bytes, mode: Union[str, CodecMode] = ..., *, element: Element = ..., row: int = ..., rows: int = ...,
           into: Bytes) -> int: ...
def encode(buffer: Bytes, mode: Union[str, CodecMode] = "default", *, element: Element = Element.BYTES, row: int = 0,
           rows: int = 0, into: Optional[Bytes] = None) -> Union[bytes, int]:
    """Codes a buffer. `element`, `row` (elements of a row) and `rows` say its form; without them it is opaque, which
    only zstd can make smaller. [token][head][dim] is row = heads * dim; [head][token][dim] is row = dim, rows = tokens.
    With `into`, which has room() bytes, it is coded there and the result is how many bytes it took."""
    source = readable(buffer, "buffer")
    number = mode_by_name(mode) if isinstance(mode, str) else mode
    options = _form(element, row, rows)
    if into is not None:
        return int(raw.kvbm_codec_encode(source, number, options, _target(source, into))[1])
    needed: int = raw.kvbm_codec_room(source.nbytes, options)[1]
    made: bytes
    _, made, n = raw.kvbm_codec_encode(source, number, options, needed)
    return made[:n]


def inspect(coded: Bytes) -> CodecInfo:
    """Reads what a coded buffer says of itself, without decoding: look before room is taken for what comes from
    elsewhere. MissError if it is no coded buffer, cut short or changed."""
    info = _raw.kvbm_codec_info_t()
    raw.kvbm_codec_inspect(readable(coded, "coded"), info)
    return CodecInfo(CodecMode(info.mode), Element(info.element), info.row_elements, info.rows, bool(info.lossy),
                     info.leaves, info.raw_leaves, info.raw_bytes, info.coded_bytes, info.error_ppb)


@overload
def decode(coded: Bytes, into: None = ..., *, allow_lossy: bool = ...) -> bytes: ...
@overload
def decode(coded: Bytes, into: Bytes, *, allow_lossy: bool = ...) -> int: ...
def decode(coded: Bytes, into: Optional[Bytes] = None, *, allow_lossy: bool = False) -> Union[bytes, int]:
    """Decodes a coded buffer. Returns the bytes or, with `into`, writes them there and returns their number. A lossy
    buffer is refused (UnavailableError) unless it is allowed. After an error the contents of `into` are undefined."""
    source = readable(coded, "coded")
    flags = raw.KVBM_CODEC_ALLOW_LOSSY if allow_lossy else 0
    if into is not None:
        return int(raw.kvbm_codec_decode(source, flags, _target(source, into))[1])
    made: bytes = raw.kvbm_codec_decode(source, flags, inspect(source).raw_bytes)[1]
    return made


def _form(element: Element, row: int, rows: int) -> raw.Struct:
    options: raw.Struct = _raw.kvbm_codec_options_t()
    options.element, options.row_elements, options.rows = element, row, rows
    return options


def _target(source: memoryview, into: Bytes) -> memoryview:
    target = extent_of(into)[0]
    if raw.buffers_overlap(source, target):
        raise invalid("the buffers overlap")
    return target
