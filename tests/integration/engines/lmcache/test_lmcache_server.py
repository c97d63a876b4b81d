"""vLLM over LMCache's real multi-process server, with libkvbm as its L2. One pair of processes finds what another pair
stored, and the model's output is the same."""
from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # beside engine.py, which conftest.py puts there

from engine import RANDOM, Engine, Output  # noqa: E402
from lmcache_server import Server, native, plugin  # noqa: E402

pytest.importorskip("lmcache", reason="LMCache is not installed: tests/integration/engines/lmcache/requirements.txt")

# Of a tiny random model the tokens alone say little: the log-probabilities tell.
PROMPT = [(7 * i * i + 3 * i) % 500 + 3 for i in range(320)]
OTHER = [(11 * i * i + 5) % 500 + 3 for i in range(64)]
CHUNK, CHUNKS = 64, 5
# A load for a prompt of whole blocks stops before its last token, which is computed.
HIT = len(PROMPT) - 1
NOISE = 0.05
# The first that a fresh vLLM computes here is one token, for which it does not ask (libkvbm/vllm/tiles.py).
TILES = "from libkvbm.vllm.tiles import ask_for_tiles; ask_for_tiles()"
SITE = {"PYTHONPATH": str(Path(__file__).parent / "site"), "PYTHONHASHSEED": "0", "LMCACHE_TRACK_USAGE": "false"}


def l2(tmp_path: Path, kind: Callable[..., dict[str, object]] = plugin) -> dict[str, object]:
    return kind(disk=str(tmp_path / "kv"), disk_capacity="2GiB", block_bytes="64KiB", weigh=False, revision="random",
                settings={"host.capacity": "64MiB"})


def asked(server: Server, tiny: Path, tmp_path: Path, *prompts: list[int]) -> list[Output]:
    """Answers of a fresh vLLM."""
    with Engine(tiny, {**RANDOM, "kv_transfer_config": server.connector()}, env=SITE,
                log=tmp_path / f"vllm-{time.monotonic_ns()}.log") as engine:
        engine.run(TILES)
        return [engine.generate([prompt], logprobs=0)[0] for prompt in prompts]


def settled(server: Server, blocks: int, seconds: float = 30) -> Any:
    """Waits until the disk has so many blocks, and returns the status of the L2 adapter."""
    end = time.monotonic() + seconds
    while (told := server.adapter())["tiers"][1]["blocks"] < blocks and time.monotonic() < end:
        time.sleep(0.1)
    return told


@pytest.fixture(scope="module")
def stored(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Output]]:
    """A disk on which a prompt's KV lies, and what the model said when it computed it."""
    tmp_path = tmp_path_factory.mktemp("stored")
    with Server([l2(tmp_path)], tmp_path / "server.log") as server:
        computed = asked(server, tiny, tmp_path, PROMPT, OTHER)[0]
        assert computed.cached == 0
        assert settled(server, CHUNKS)["tiers"][1]["blocks"] >= CHUNKS
    yield tmp_path, computed


def test_a_fresh_server_and_a_fresh_vllm_load_what_the_disk_has(tiny: Path, stored: tuple[Path, Output],
                                                               tmp_path: Path) -> None:
    place, computed = stored
    with Server([l2(place)], tmp_path / "server.log") as server:
        loaded = asked(server, tiny, tmp_path, PROMPT)[0]
        told = server.adapter()
    assert loaded.cached == HIT
    assert loaded.agrees(computed, NOISE)
    assert told["is_healthy"] and told["tiers"][0]["damaged"] == told["tiers"][1]["damaged"] == 0


def test_flipped_bytes_on_the_disk_are_a_miss_and_are_computed_again(tiny: Path, stored: tuple[Path, Output],
                                                                    tmp_path: Path) -> None:
    place, computed = stored
    with Server([l2(place)], tmp_path / "server.log") as server:
        pass  # the disk is closed in order
    flipped = flip(place / "kv")
    assert flipped > 0
    with Server([l2(place)], tmp_path / "server2.log") as server:
        again = asked(server, tiny, tmp_path, PROMPT)[0]
    assert again.cached < HIT
    assert again.agrees(computed, NOISE)


def flip(disk: Path) -> int:
    """Changes a byte of every 4 KiB that has something in it, in the data files; returns how many."""
    flipped = 0
    for file in sorted(p for p in disk.rglob("*") if p.is_file() and p.stat().st_size > 1 << 20):
        data = bytearray(file.read_bytes())
        for at in range(1 << 16, len(data), 4096):
            if any(data[at:at + 4096]):
                data[at + 2048] ^= 0x10
                flipped += 1
        file.write_bytes(data)
    return flipped


def test_the_native_client_serves_the_same(tiny: Path, tmp_path: Path) -> None:
    with Server([l2(tmp_path, native)], tmp_path / "server.log") as server:
        computed = asked(server, tiny, tmp_path, PROMPT, OTHER)[0]
        server.clear()
        time.sleep(2)  # until stores in flight to L2 have ended
        loaded = asked(server, tiny, tmp_path, PROMPT)[0]
    assert computed.cached == 0 and loaded.cached == HIT and loaded.agrees(computed, NOISE)


def test_a_configuration_that_cannot_be_meant_refuses_the_servers_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="there is no option 'blocks'"):
        Server([plugin(blocks=3)], tmp_path / "server.log")
