"""Keys: 16-byte names of blocks' content, kept as one piece of native memory."""
from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Iterator, NamedTuple, Optional, Sequence, Union, overload

from . import _native as raw
from .constants import Status
from .errors import CallerError, invalid
from .memory import as_u32

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .memory import Integers
    from .namespace import Namespace

    KeysLike = Union["Keys", Buffer, Iterable[Buffer]]

KEY_BYTES = 16


class Keys(raw.Memory):
    """An array of keys that owns its memory: [n][16] bytes, read-only, handed to the library without a copy.

    len(keys), keys[i] (16 bytes), keys[i:j] (Keys), iteration, ==, +, bytes(keys); also a buffer.
    Keys(other_buffer) copies bytes with a length that is a multiple of 16, and Keys([b"...", ...]) copies a list.
    """

    __slots__ = ()

    def __new__(cls, source: Union[Buffer, Iterable[Buffer]] = b"") -> Keys:
        try:
            data: Buffer = memoryview(source)  # type: ignore[arg-type]
        except TypeError:
            if isinstance(source, (str, int)):
                raise TypeError(f"expected keys, got {type(source).__name__}") from None
            items = [bytes(memoryview(item)) for item in source]  # type: ignore[union-attr]
            if any(len(item) != KEY_BYTES for item in items):
                raise invalid("a key has 16 bytes") from None
            data = b"".join(items)
        keys = super().__new__(cls, data)
        if keys.nbytes % KEY_BYTES != 0:
            raise invalid(f"{keys.nbytes} bytes are no whole number of 16-byte keys")
        keys.freeze()
        return keys

    @classmethod
    def _room(cls, n: int) -> Keys:
        return raw.Memory.__new__(cls, n * KEY_BYTES)

    @classmethod
    def chain(cls, ns: Namespace, tokens: Integers, block_tokens: int, *, previous: Optional[Buffer] = None,
              extras: Optional[Sequence[Optional[bytes]]] = None) -> Keys:
        """Keys of consecutive full blocks, each depending on all before it: the names for prefix caching. `previous`
        is the key of the block before; `extras` has one entry per full block. A partial last block gets no key."""
        data, n = _tokens(tokens, block_tokens)
        before = None if previous is None else one_key(previous)
        keys = cls._room(n)
        memory = _extras(extras, n)
        raw.kvbm_key_chain(ns._handle, before, data, block_tokens, memory, keys)
        keys.freeze()
        return keys

    @classmethod
    def content(cls, ns: Namespace, tokens: Integers, block_tokens: int, *,
                extras: Optional[Sequence[Optional[bytes]]] = None) -> Keys:
        """Keys of full blocks by their own tokens alone, wherever they stand."""
        data, n = _tokens(tokens, block_tokens)
        keys = cls._room(n)
        memory = _extras(extras, n)
        raw.kvbm_key_content(ns._handle, data, block_tokens, memory, keys)
        keys.freeze()
        return keys

    @classmethod
    def from_hashes(cls, ns: Namespace, hashes: Union[Buffer, Sequence[bytes]],
                    hash_bytes: Optional[int] = None) -> Keys:
        """Keys from an engine's own hashes: a list of equally long ones, or [n][hash_bytes] in a buffer. A hash has 16
        bytes or more, unless the namespace was opened with weak_hashes."""
        if isinstance(hashes, (list, tuple)):
            if hash_bytes is None:
                hash_bytes = len(hashes[0]) if hashes else 1
            if any(len(item) != hash_bytes for item in hashes):
                raise invalid("hashes of different lengths")
            hashes = b"".join(hashes)
        if hash_bytes is not None and not 0 <= hash_bytes < 1 << 64:
            raise OverflowError(f"hash_bytes: {hash_bytes} is not between 0 and {(1 << 64) - 1}")
        if hash_bytes is None or hash_bytes == 0:
            raise invalid("hash_bytes says how long a hash in the buffer is")
        data = memoryview(hashes)  # type: ignore[arg-type]
        size = data.nbytes
        if size % hash_bytes != 0:
            raise invalid(f"{size} bytes are no whole number of hashes of {hash_bytes}")
        keys = cls._room(size // hash_bytes)
        try:
            raw.kvbm_key_from_hashes(ns._handle, data, hash_bytes, size // hash_bytes, keys)
        except CallerError as error:
            if error.status != Status.INVALID or hash_bytes >= 16:
                raise
            raise invalid(f"hashes of {hash_bytes} bytes are taken where the namespace has weak_hashes; 16 to 64 always"
                          ) from None
        keys.freeze()
        return keys

    def __len__(self) -> int:
        return self.nbytes // KEY_BYTES

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Keys: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[bytes, Keys]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step == 1:
                return self.slice(first * KEY_BYTES, max(last - first, 0) * KEY_BYTES)
            return Keys([self[i] for i in range(first, last, step)])
        n = len(self)
        if index < 0:
            index += n
        if not 0 <= index < n:
            raise IndexError("no such key")
        return bytes(memoryview(self)[index * KEY_BYTES:(index + 1) * KEY_BYTES])

    def __iter__(self) -> Iterator[bytes]:
        data = bytes(self)
        return iter([data[i:i + KEY_BYTES] for i in range(0, len(data), KEY_BYTES)])

    def __contains__(self, key: object) -> bool:
        return any(item == key for item in self)

    def __add__(self, other: Keys) -> Keys:
        return Keys(bytes(self) + bytes(other))

    def __eq__(self, other: object) -> bool:
        return bytes(self) == bytes(other) if isinstance(other, Keys) else NotImplemented

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __reduce__(self) -> tuple[type[Keys], tuple[bytes]]:
        return Keys, (bytes(self),)

    def __repr__(self) -> str:
        return f"Keys([{', '.join(key.hex() for key in self[:3])}{', ...' if len(self) > 3 else ''}])"


def as_keys(keys: KeysLike) -> Keys:
    """Keys as they are; anything else is checked and copied."""
    return keys if isinstance(keys, Keys) else Keys(keys)


def one_key(key: Buffer) -> Keys:
    keys = as_keys(key)
    if len(keys) != 1:
        raise invalid("a key has 16 bytes")
    return keys


def _tokens(tokens: Integers, block_tokens: int) -> tuple[memoryview, int]:
    if block_tokens == 0:
        raise invalid("block_tokens is at least 1")
    if not 0 < block_tokens < 1 << 32:
        raise OverflowError(f"block_tokens: {block_tokens} is not between 0 and {(1 << 32) - 1}")
    data = as_u32(tokens, "tokens")
    return data, data.nbytes // 4 // block_tokens


class _Extras(raw.Memory):
    """The array of kvbm_extra_t, and the bytes that it points to."""

    kept: list[Optional[bytes]]


def _extras(extras: Optional[Sequence[Optional[bytes]]], n: int) -> Optional[raw.Memory]:
    if extras is None:
        return None
    if len(extras) != n:
        raise invalid(f"{n} full blocks, and {len(extras)} extras")
    memory = _Extras(raw.kvbm_extra_t_size * max(n, 1))
    memory.kept = [None if item is None else bytes(item) for item in extras]
    for i, item in enumerate(memory.kept):
        if item:
            row = raw.kvbm_extra_t_at(memory, i)
            row.data, row.bytes = item, len(item)
    return memory


class Position(NamedTuple):
    """Where a block under a content key was computed, or will stand."""

    first_token: int
    rotation: int = 0
    left_context: int = 0


def position_memory(positions: Optional[Sequence[Position]], n: int) -> Optional[raw.Memory]:
    """Of n keys, as the library takes them; None stays None."""
    if positions is None:
        return None
    if len(positions) != n:
        raise invalid(f"{n} keys, and {len(positions)} positions")
    memory = raw.Memory(raw.kvbm_position_t_size * max(n, 1))
    for i, position in enumerate(positions):
        row = raw.kvbm_position_t_at(memory, i)
        row.first_token, row.rotation, row.left_context = position
    return memory
