"""What the digest of a model's files sees of them, for the plug-ins of all engines."""
from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from libkvbm.engine.weights import digest_of, place_of, weights_of

MIB = 1 << 20


def folder(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text('{"rope_theta": 1}')
    (place / "model.safetensors").write_bytes(b"1" * 1000)
    return place


def overwrite(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda place: (place / name).write_bytes(data)


@pytest.mark.parametrize("change", [
    overwrite("model.safetensors", b"1" * 999 + b"2"),
    overwrite("model.safetensors", b"1" * 1001),
    overwrite("more.safetensors", b""),
    overwrite("hf_quant_config.json", b'{"kv_cache_quant_algo": "FP8"}'),
    overwrite("adapter_config.json", b'{"r": 8}'),
    overwrite("preprocessor_config.json", b'{"image_mean": [0, 0, 0]}'),
    overwrite("modeling_own.py", b"pass"),
    lambda place: (place / "model.safetensors").rename(place / "model.bin"),
], ids=["bytes", "size", "another file", "quantisation", "adapter", "images", "code", "name"])
def test_what_makes_another_model(tmp_path: Path, change: Callable[[Path], object]) -> None:
    place = folder(tmp_path / "model")
    before = digest_of(place), weights_of(str(place))
    assert (digest_of(place), weights_of(str(place))) == before
    change(place)
    assert digest_of(place) != before[0] and weights_of(str(place)) != before[1]


def test_what_makes_no_other_model(tmp_path: Path) -> None:
    place = folder(tmp_path / "model")
    before = digest_of(place)
    (place / "README.md").write_text("read me")
    (place / "checkpoint.bin").mkdir()
    assert digest_of(place) == before == digest_of(folder(tmp_path / "elsewhere"))
    assert weights_of(str(place)) == weights_of(str(folder(tmp_path / "other" / "model")))


def test_an_engine_that_tells_of_the_configuration_leaves_the_file_out(tmp_path: Path) -> None:
    place = folder(tmp_path / "model")
    told, whole = digest_of(place, config=False), digest_of(place)
    (place / "config.json").write_text('{"rope_theta": 2}')
    assert digest_of(place, config=False) == told and digest_of(place) != whole


def test_a_large_file_is_known_by_pieces_of_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    with open(file, "wb") as stream:
        stream.truncate(80 * MIB)
    before, seen = digest_of(file), set()
    for at in (0, 40 * MIB, 80 * MIB - 1):
        with open(file, "r+b") as stream:
            stream.seek(at)
            stream.write(b"1")
        seen.add(digest_of(file))
    assert len(seen | {before}) == 4


def test_a_model_that_is_not_here_is_its_name_and_revision(tmp_path: Path) -> None:
    assert place_of(str(tmp_path / "nowhere")) is None
    assert weights_of("nobody/nothing", "main") == "nobody/nothing@main" and weights_of("nobody/nothing") == "nobody/nothing"
