"""Batches as bytes. A batch is [ts, [event...], rank]; an event is a map {"type": name, field: value...} (vLLM from
0.25 on, SGLang) or an array [name, value...] with fields in the order below (vLLM up to 0.22, llm-d).

decode() accepts untrusted bytes: an invalid event is counted and skipped, and the rest is used.
"""
from __future__ import annotations

from typing import Any, Optional

from .kinds import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event
from .packing import PackingError, pack, unpack

MAX_PAYLOAD = 64 << 20
"""Larger messages are refused before they are decoded: about 8 million tokens."""
_U64 = 1 << 64
_I64 = -(1 << 63)
_COUNT = 1 << 31
_TEXT = 4096

# Fields in vLLM's order. Arrays go out with those of 0.22, all of them, as it sends them: its readers skip what is
# beyond the fields that they know.
_STORED = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
           "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership",
           "session_id")
_REMOVED = ("block_hashes", "medium", "group_idx", "locality", "ownership")
_ARRAY_STORED = _STORED[:11]
_ARRAY_REMOVED = _REMOVED[:3]
# Present in a map also where they are None.
_ALWAYS = {"vllm": {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"},
           "sglang": {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"}}
_MAP_STORED = {"vllm": _STORED + ("lookahead_token_ids",),
               "sglang": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
                          "cache_salt", "session_id", "lora_name")}
_MAP_REMOVED = {"vllm": _REMOVED, "sglang": ("block_hashes", "medium")}
VARIANTS = ("vllm", "sglang")
ENCODINGS = ("map", "array")


def encode(batch: Batch, *, encoding: str = "map", variant: str = "vllm") -> bytes:
    """The payload of a message."""
    events: list[Any] = [_as_map(event, variant) if encoding == "map" else _as_array(event) for event in batch.events]
    return pack([batch.ts, events, batch.rank])


def _as_map(event: Event, variant: str) -> dict[str, Any]:
    row: dict[str, Any] = {"type": type(event).__name__}
    if isinstance(event, AllBlocksCleared):
        return row
    fields = _MAP_STORED[variant] if isinstance(event, BlockStored) else _MAP_REMOVED[variant]
    always = _ALWAYS[variant] if isinstance(event, BlockStored) else {"block_hashes"} | (
        {"medium"} if variant == "vllm" else set())
    for name in fields:
        value = getattr(event, name)
        if value is not None or name in always:
            row[name] = value
    return row


def _as_array(event: Event) -> list[Any]:
    if isinstance(event, AllBlocksCleared):
        return ["AllBlocksCleared"]
    names = _ARRAY_STORED if isinstance(event, BlockStored) else _ARRAY_REMOVED
    return [type(event).__name__, *(getattr(event, name) for name in names)]


class Decoded:
    """Contents of a payload; `batch` is None if the whole payload is invalid."""

    __slots__ = ("batch", "malformed", "unknown", "why")

    def __init__(self) -> None:
        self.batch: Optional[Batch] = None
        self.malformed = 0
        self.unknown = 0
        self.why = ""


class _Wrong(Exception):
    pass


def decode(payload: bytes) -> Decoded:
    """Never raises for what the bytes are."""
    result = Decoded()
    try:
        result.batch = _batch(payload, result)
    except (_Wrong, PackingError) as error:
        result.malformed += 1
        result.why = str(error)
    return result


def _batch(payload: bytes, result: Decoded) -> Batch:
    if len(payload) > MAX_PAYLOAD:
        raise _Wrong(f"a message of {len(payload)} bytes")
    whole = unpack(payload)
    if not isinstance(whole, list) or not 2 <= len(whole) <= 16:
        raise _Wrong("a batch is an array of time, events and rank")
    ts, rows, rank = whole[0], whole[1], whole[2] if len(whole) > 2 else None
    if isinstance(ts, bool) or not isinstance(ts, (int, float)) or not isinstance(rows, list):
        raise _Wrong("a batch begins with a time and a list of events")
    batch = Batch(float(ts), [], _optional_int(rank, "rank", 0, _COUNT))
    for row in rows:
        try:
            event = _event(row)
        except _Wrong as error:
            result.malformed += 1
            result.why = str(error)
            continue
        if event is None:
            result.unknown += 1
        else:
            batch.events.append(event)
    return batch


def _event(row: Any) -> Optional[Event]:
    """None: of a kind that is not known."""
    if isinstance(row, dict):
        kind, fields = row.get("type"), row
    elif isinstance(row, list) and row:
        kind = row[0]
        names = _STORED if kind == "BlockStored" else _REMOVED if kind == "BlockRemoved" else ()
        fields = dict(zip(names, row[1:]))
    else:
        raise _Wrong("an event is a map or an array")
    if not isinstance(kind, str):
        raise _Wrong("an event has no type")
    if kind == "BlockStored":
        return _stored(fields)
    if kind == "BlockRemoved":
        return BlockRemoved(_hashes(fields), _text(fields, "medium"), _count(fields, "group_idx"),
                            _text(fields, "locality"), _text(fields, "ownership"))
    return AllBlocksCleared() if kind == "AllBlocksCleared" else None


def _stored(fields: dict[str, Any]) -> BlockStored:
    parent = fields.get("parent_block_hash")
    if parent is not None and not _is_hash(parent):
        raise _Wrong("parent_block_hash is no hash")
    size = fields.get("block_size", 0)
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < _COUNT:
        raise _Wrong("block_size is no size")
    return BlockStored(
        _hashes(fields), parent, _tokens(fields.get("token_ids")), size, _number(fields, "lora_id"),
        _text(fields, "medium"), _text(fields, "lora_name"), _extra_keys(fields.get("extra_keys")),
        _count(fields, "group_idx"), _text(fields, "kv_cache_spec_kind"),
        _count(fields, "kv_cache_spec_sliding_window"), _text(fields, "locality"), _text(fields, "ownership"),
        _text(fields, "session_id"), _plain_tokens(fields.get("lookahead_token_ids")), _text(fields, "cache_salt"))


def _is_hash(value: Any) -> bool:
    if isinstance(value, bytes):
        return 0 < len(value) <= 64
    return isinstance(value, int) and not isinstance(value, bool) and _I64 <= value < _U64


def _hashes(fields: dict[str, Any]) -> list[Any]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list) or not (_all_numbers(hashes, _I64, _U64) or all(map(_is_hash, hashes))):
        raise _Wrong("block_hashes is no list of hashes")
    return hashes


def _all_numbers(values: list[Any], low: int, end: int) -> bool:
    """Without a step of Python for each: there are thousands."""
    return not values or (set(map(type, values)) == {int} and low <= min(values) and max(values) < end)


def _are_tokens(values: list[Any]) -> bool:
    return _all_numbers(values, 0, 1 << 63)


def _tokens(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Wrong("token_ids is no list")
    if _are_tokens(value):
        return value
    if all(isinstance(pair, list) and len(pair) == 2 and _are_tokens(pair) for pair in value):
        return [(pair[0], pair[1]) for pair in value]
    raise _Wrong("token_ids has what is no token")


def _plain_tokens(value: Any) -> Optional[list[int]]:
    if value is None:
        return None
    if not isinstance(value, list) or not _are_tokens(value):
        raise _Wrong("lookahead_token_ids is no list of tokens")
    return value


def _extra_keys(value: Any) -> Any:
    if value is not None and not (isinstance(value, list) and all(row is None or isinstance(row, list)
                                                                   for row in value)):
        raise _Wrong("extra_keys is no list of lists")
    return value


def _text(fields: dict[str, Any], name: str) -> Optional[str]:
    value = fields.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _TEXT):
        raise _Wrong(f"{name} is no short text")
    return value


def _number(fields: dict[str, Any], name: str) -> Optional[int]:
    return _optional_int(fields.get(name), name, _I64, -_I64)


def _count(fields: dict[str, Any], name: str) -> Optional[int]:
    return _optional_int(fields.get(name), name, 0, _COUNT)


def _optional_int(value: Any, name: str, low: int, high: int) -> Optional[int]:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value < high):
        raise _Wrong(f"{name} is no number that it can be")
    return value
