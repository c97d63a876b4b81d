"""Tiers in an engine's configuration. Options of a single engine are tested with that engine."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import libkvbm
from libkvbm.engine import Configuration, ConfigurationError
from test_store import until

BLOCK = 4096


def stores_and_finds(tmp_path: Path, given: dict[str, Any]) -> int:
    """How many of four blocks a second manager of this configuration finds; both are open at a time."""
    keep = []
    for manager in (Configuration.of(given).open(BLOCK), Configuration.of(given).open(BLOCK)):
        ns = libkvbm.Namespace(manager, "m")
        keep.append((manager, ns, libkvbm.Cache(manager, ns, 4, tensors=[bytearray(4 * BLOCK)])))
    (first, ns, cache), (second, _, other) = keep
    keys = libkvbm.Keys.chain(ns, range(4), 1)
    cache.store(keys, range(4))
    assert first.flush() == libkvbm.Status.OK

    def look() -> int:
        with other.lookup(keys) as match:
            return match.hits if match.hits == 4 and other.load(match, range(4)).status == 0 else 0

    hits: int = until(look)
    tiers = second.stats().tiers
    for manager, ns, cache in keep:
        cache.close()
        ns.close()
        manager.close()
    assert len(tiers) == 1 + len(Configuration.of(given).stores) + bool(given.get("disk"))
    return hits


@pytest.mark.parametrize("given", ["one", "list"])
def test_stores_are_tiers(tmp_path: Path, given: str) -> None:
    urls = [f"file://{tmp_path}/{name}?poll=20ms&publish=10ms" for name in ("near", "far")]
    assert stores_and_finds(tmp_path, {"stores": urls[0] if given == "one" else urls}) == 4


def test_stores_stand_below_a_disk_that_processes_share(tmp_path: Path) -> None:
    given: dict[str, Any] = {"disk": str(tmp_path / "disk"), "disk_capacity": "64MiB", "share": True}
    tiers = []
    for more in ({}, {"stores": f"file://{tmp_path}/store?poll=20ms&publish=10ms"}):
        manager = Configuration.of({**given, **more}).open(BLOCK)
        tiers.append(len(manager.stats().tiers))
        manager.close()
    assert tiers[1] == tiers[0] + 1


@pytest.mark.parametrize("stores, words", [
    (7, "stores is a URL or a list of URLs"), ([7], "stores is a URL or a list of URLs"),
    ("/mnt/shared", "the first is no URL"), (["file:///x", "s3:bucket"], "the second is no URL"),
])
def test_what_is_no_url_is_refused(stores: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Configuration.of({"stores": stores})


def test_a_store_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="could not be started.*nothing-known"):
        Configuration.of({"stores": "nothing-known://x"}).open(BLOCK)
    with pytest.raises(ConfigurationError, match="did you mean shared"):
        Configuration.of({"stores": f"file://{tmp_path}/x?shard=on"}).open(BLOCK)


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(Configuration.of({"stores": "redis://:hunter2@host"}))
    with pytest.raises(ConfigurationError) as refused:
        Configuration.of({"stores": ["hunter2@host"]})
    assert "hunter2" not in str(refused.value)
