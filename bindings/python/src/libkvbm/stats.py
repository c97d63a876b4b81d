"""Observation of a manager: counters, rows of scans, nodes and locations."""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import _native as raw
from .constants import CodecMode

_TIER = ("capacity_bytes", "used_bytes", "blocks", "payload_bytes", "hits", "hit_bytes", "misses", "stores",
         "store_bytes", "loads", "load_bytes", "evictions", "damaged", "errors", "metadata_bytes")
_MANAGER = ("lookups", "keys_looked_up", "keys_hit", "holds", "pins", "matches", "operations_in_flight",
            "stores_refused_room", "stores_refused_quota", "deadline_missed", "position_mismatches",
            "verify_failures", "offloads_skipped", "loads_weighed", "load_predicted_ns", "load_actual_ns",
            "loads_not_started", "blocks_left", "compute_saved_ns", "compute_lost_ns", "lossy_refused")
_CODEC = ("coded", "plain_bytes", "stored_bytes", "sealed", "left_plain", "encode_ns", "decode_ns", "decoded",
          "decoded_bytes", "refused_lossy", "missing_keys", "damaged", "stepped_down", "probes", "lossy_error")
_MOST_TIERS = 8


@dataclass(frozen=True)
class TierStats:
    """Counters of one tier."""

    capacity_bytes: int
    used_bytes: int
    blocks: int
    payload_bytes: int
    hits: int
    hit_bytes: int
    misses: int
    stores: int
    store_bytes: int
    loads: int
    load_bytes: int
    evictions: int
    damaged: int
    errors: int
    metadata_bytes: int
    disabled: bool


@dataclass(frozen=True)
class TierCodecStats:
    """Counters of a tier that codes or seals; bytes are of payloads."""

    coded: int
    plain_bytes: int
    stored_bytes: int
    sealed: int
    left_plain: int
    encode_ns: int
    decode_ns: int
    decoded: int
    decoded_bytes: int
    refused_lossy: int
    missing_keys: int
    damaged: int
    stepped_down: int
    probes: int
    lossy_error: float  # sum of squared differences / sum of squared values of lossy records
    mode: CodecMode
    automatic: bool
    setting: CodecMode  # that the tier's codec names; off also where it is auto
    seals: bool  # whatever is written there


@dataclass(frozen=True)
class Stats:
    """Counters of a manager. tiers[0] is the host."""

    lookups: int
    keys_looked_up: int
    keys_hit: int
    holds: int
    pins: int
    matches: int
    operations_in_flight: int
    stores_refused_room: int
    stores_refused_quota: int
    deadline_missed: int
    position_mismatches: int
    verify_failures: int
    offloads_skipped: int
    # of loads with compute_block_ns: started, the time they were to take and took, not started, keys left to compute,
    # computing they made unnecessary less their time, and time of those that took longer
    loads_weighed: int
    load_predicted_ns: int
    load_actual_ns: int
    loads_not_started: int
    blocks_left: int
    compute_saved_ns: int
    compute_lost_ns: int
    lossy_refused: int  # blocks that a handle without allow_lossy was not given
    tiers: tuple[TierStats, ...]
    codec: tuple[TierCodecStats, ...]  # by tier


class ScanRow(NamedTuple):
    """One live block or stored record."""

    key: bytes
    namespace_id: bytes
    bytes: int
    tier: int
    component: int
    uses: int
    holds: int
    pins: int
    age: int


class NodeRow(NamedTuple):
    """A node that is connected, or an address of node.peers."""

    node: bytes
    address: str
    state: str
    capacity_bytes: int
    used_bytes: int
    records: int
    fetched_bytes: int
    served_bytes: int
    path: str
    path_reason: str
    local_bytes: int
    codec: CodecMode  # that large reads are asked with now
    codec_automatic: bool  # node.codec = auto has chosen it
    codec_sealed: bool  # nothing is taken from it that is not sealed
    codec_refused: int
    codec_plain_bytes: int  # of records that came coded or sealed, after decoding
    codec_stored_bytes: int  # and as it came


class DeviceMoves(NamedTuple):
    """Counters of one direction of copies between a device and host memory; leaves also by their path."""

    batches: int
    leaves: int
    bytes: int
    bad_leaves: int
    mapped_leaves: int
    staged_leaves: int
    straight_leaves: int
    bounced_leaves: int
    device_ns: int


class DeviceRow(NamedTuple):
    """A device that caches of a manager lie on, or lay on."""

    ordinal: int
    lost: bool
    name: str
    pci: str
    state: str  # "ready", or in words what is wrong
    memory_bytes: int
    pinned_bytes: int
    gathers: DeviceMoves
    scatters: DeviceMoves


class Location(NamedTuple):
    """How far one node has the keys of one request."""

    node: bytes  # zero bytes: this manager
    request: int
    tier: int
    n_prefix: int
    n_in_tier: int
    bytes: int


class Locations(list[Location]):
    """Rows of Manager.locate; PARTIAL if some node has not answered all of it in time."""

    status: int = 0


class Share(NamedTuple):
    """The role of this process in a shared tier set."""

    role: int
    owner_pid: int
    clients: int
    takeovers: int
    owners_lost: int
    silent_lookups: int


def stats_of(counters: raw.Struct) -> Stats:
    rows = [counters.tier(i) for i in range(min(counters.n_tiers, _MOST_TIERS))]
    tiers = tuple(TierStats(**{n: getattr(row, n) for n in _TIER}, disabled=bool(row.disabled)) for row in rows)
    coding = [counters.tier_codec(i) for i in range(len(rows))]
    codec = tuple(TierCodecStats(**{n: getattr(row, n) for n in _CODEC}, mode=CodecMode(row.mode),
                                 automatic=bool(row.automatic), setting=CodecMode(row.setting),
                                 seals=bool(row.seals)) for row in coding)
    return Stats(**{name: getattr(counters, name) for name in _MANAGER}, tiers=tiers, codec=codec)


def share_of(row: raw.Struct) -> Share:
    return Share(*(getattr(row, name) for name in Share._fields))
