"""Objects, their errors, and what does not hold a conformance scenario's interest."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import libkvbm
from libkvbm import _native as raw


def test_an_unknown_setting_is_the_callers_error() -> None:
    with pytest.raises(libkvbm.CallerError, match="no.such") as caught:
        libkvbm.Context({"no.such": 1})
    assert caught.value.name == "KVBM_ERR_CONFIG"
    assert caught.value.status == libkvbm.Status.CONFIG
    assert isinstance(caught.value, ValueError)


def test_settings_may_be_numbers_and_bools() -> None:
    with libkvbm.Context({"threads": 3, "host.capacity": "8MiB"}, threads=1) as context:
        assert "threads = " in context.config()
    assert "host.capacity" in libkvbm.config_reference()


def test_a_setting_with_a_zero_character_is_refused() -> None:
    with pytest.raises(ValueError, match="zero character"):
        libkvbm.Context({"host.capacity": "1\0"})


@pytest.mark.parametrize("status, band", [
    (raw.KVBM_ERR_INVALID, libkvbm.CallerError), (raw.KVBM_ERR_STALE, libkvbm.ClosedError),
    (raw.KVBM_ERR_FORKED, libkvbm.ForkedError), (raw.KVBM_ERR_DISK_FULL, libkvbm.NoRoomError),
    (raw.KVBM_ERR_DEADLINE, libkvbm.DeadlineError), (raw.KVBM_ERR_OWNER_GONE, libkvbm.PeerError),
    (raw.KVBM_ERR_MISS, libkvbm.MissError), (raw.KVBM_ERR_PERMISSION, libkvbm.UnavailableError),
    (raw.KVBM_ERR_IO, libkvbm.InternalError), (-999, libkvbm.InternalError),
])
def test_every_band_has_its_class(status: int, band: type[libkvbm.KvbmError]) -> None:
    error = libkvbm.errors.error_of(status)
    assert type(error) is band
    assert error.message and error.name in str(error)


def test_a_component_of_state_has_bytes_for_elements() -> None:
    kind = libkvbm.ComponentKind.STATE
    geometry = libkvbm.Geometry(4, [libkvbm.Component(kind, layers=2, state_bytes=64)])
    assert geometry.record_bytes() == 128
    with pytest.raises(libkvbm.CallerError, match="element"):
        libkvbm.Geometry(4, [libkvbm.Component(kind, libkvbm.Element.BF16, layers=2, state_bytes=64)])


def test_closing_twice_is_fine_and_a_closed_object_says_so(context: libkvbm.Context) -> None:
    manager = libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20)
    ns = libkvbm.Namespace(manager, "m")
    keys = libkvbm.Keys.chain(ns, range(8), 4)
    queue = libkvbm.Queue(context, 4)
    geometry = libkvbm.Geometry(4, [libkvbm.Component(layers=1, heads=1, head_dim=8)])
    for item in (queue, geometry, ns, manager):
        item.close()
        item.close()
    uses: list[Callable[[], object]] = [
        lambda: manager.stats(), lambda: manager.lookup(ns, keys), lambda: ns.id, lambda: queue.poll(),
        lambda: queue.wait(0), lambda: queue.fileno(), lambda: queue.poll_events(), lambda: geometry.fingerprint,
        lambda: list(manager.scan()), lambda: manager.metrics(), lambda: manager.queue(), lambda: manager.flush(),
        lambda: libkvbm.Keys.chain(ns, range(8), 4), lambda: libkvbm.Namespace(manager, "n"),
        lambda: manager.subscribe(queue), lambda: manager.allocate(ns, 1), lambda: geometry.record_bytes(),
    ]
    for use in uses:
        with pytest.raises(libkvbm.ClosedError):
            use()
    context.close()
    with pytest.raises(libkvbm.ClosedError):
        libkvbm.Manager(context)


def test_a_match_of_nothing_is_empty(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    match = manager.lookup(ns, libkvbm.Keys.chain(ns, range(8), 4))
    assert not match and match.hits == 0 and len(match) == 0 and match.units == 0
    assert match.items() == [] and len(match.blocks()) == 0
    match.release()
    match.release()
    with pytest.raises(libkvbm.ClosedError):
        match.items()


def test_keys_are_an_array_of_bytes(ns: libkvbm.Namespace) -> None:
    keys = libkvbm.Keys.chain(ns, range(40), 4)
    assert len(keys) == 10 and len(bytes(keys)) == 160 and memoryview(keys).readonly
    assert keys[0] == bytes(keys)[:16] and keys[-1] == bytes(keys)[144:] and keys[0] in keys
    assert keys[2:4] == libkvbm.Keys([keys[2], keys[3]]) and keys[::3] == libkvbm.Keys(list(keys)[::3])
    assert keys[:4] + keys[4:] == keys and hash(keys[:]) == hash(keys)
    assert libkvbm.Keys.chain(ns, range(16, 40), 4, previous=keys[3]) == keys[4:]
    assert len(keys[5:2]) == 0 and len(libkvbm.Keys()) == 0
    with pytest.raises(IndexError):
        keys[10]


def test_what_is_no_key_is_refused(ns: libkvbm.Namespace) -> None:
    for wrong in (b"short", [b"short"], bytearray(17)):
        with pytest.raises(ValueError):
            libkvbm.Keys(wrong)
    for other in ("text", 5, None, [3]):
        with pytest.raises(TypeError):
            libkvbm.Keys(other)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        libkvbm.Keys.chain(ns, range(8), 4, previous=bytes(32))
    with pytest.raises(ValueError):
        libkvbm.Keys.chain(ns, range(8), 4, extras=[b"a"])
    with pytest.raises(ValueError):
        libkvbm.Keys.chain(ns, range(8), 0)
    with pytest.raises(ValueError):
        libkvbm.Keys.from_hashes(ns, [b"aa", b"b"])
    with pytest.raises(ValueError):
        libkvbm.Keys.from_hashes(ns, b"abc", 2)
    with pytest.raises(ValueError, match="weak_hashes"):
        libkvbm.Keys.from_hashes(ns, bytes(30), 15)
    with pytest.raises(ValueError, match="KVBM_ERR_INVALID"):
        libkvbm.Keys.from_hashes(ns, bytes(65), 65)
    with libkvbm.Namespace(ns.manager, "test model", weak_hashes=True) as weak:
        assert len(libkvbm.Keys.from_hashes(weak, bytes(30), 15)) == 2
        assert libkvbm.Keys.from_hashes(weak, bytes(16), 16) == libkvbm.Keys.from_hashes(ns, bytes(16), 16)


def test_extras_make_other_keys(ns: libkvbm.Namespace) -> None:
    plain = libkvbm.Keys.chain(ns, range(8), 4)
    salted = libkvbm.Keys.chain(ns, range(8), 4, extras=[None, b"salt"])
    assert plain[0] == salted[0] and plain[1] != salted[1]
    assert libkvbm.Keys.content(ns, range(8), 4, extras=[b"", b""]) == libkvbm.Keys.content(ns, range(8), 4)


def test_a_secret_has_32_bytes(manager: libkvbm.Manager) -> None:
    with pytest.raises(ValueError):
        libkvbm.Namespace(manager, "m", secret=b"short")


def test_an_owner_of_a_directory_is_named(context: libkvbm.Context, tmp_path: Path) -> None:
    tiers = [libkvbm.Tier(str(tmp_path), 64 << 20)]
    with libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20, tiers=tiers):
        with pytest.raises(libkvbm.CallerError, match="process") as caught:
            libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20, tiers=tiers)
        assert caught.value.status == libkvbm.Status.IN_USE
    libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20, tiers=tiers).close()


def test_many_rows_are_all_given(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    keys = libkvbm.Keys.chain(ns, range(200), 1)
    with manager.allocate(ns, 200) as blocks:
        blocks.complete()
        blocks.register(ns, keys)
    assert {row.key for row in manager.scan()} == set(keys)
    rows = manager.locate(ns, keys, request_keys=[1] * 200)
    assert [row.request for row in rows] == list(range(200)) and rows.status == libkvbm.Status.OK


def test_evicted_keys_are_told(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
    keys = libkvbm.Keys.chain(ns, range(4000), 1)
    gone: set[bytes] = set()
    for i in range(0, 400, 10):
        blocks, evicted, n = manager.allocate_evicting(ns, 10)
        assert n == len(evicted)
        gone |= set(evicted)
        blocks.complete()
        blocks.register(ns, keys[i:i + 10], unchained=True)
        blocks.release()
    assert gone and gone <= set(keys)


def test_a_version_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libkvbm._native, "kvbm_version", lambda: 99_001_000)
    with pytest.raises(ImportError, match=r"made for libkvbm 0\.1\.0.*99\.1\.0"):
        libkvbm._check_version()
