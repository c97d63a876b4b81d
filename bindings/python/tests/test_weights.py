"""The digest of a model's files, for the plug-ins of all engines."""
from __future__ import annotations

import builtins
import json
import os
import zipfile
from pathlib import Path
from typing import Any, Callable

import pytest

from libkvbm.engine.aside import ConfigurationError
from libkvbm.engine.weights import digest_of, place_of, weights_of

MIB = 1 << 20
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def no_memory_of_earlier_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def folder(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text('{"rope_theta": 1}')
    (place / "model.safetensors").write_bytes(b"1" * 1000)
    return place


def safetensors(file: Path, n: int, byte: bytes = b"\0") -> None:
    """A file of the format with one tensor of so many bytes; sparse, where they are zero."""
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
    with open(file, "wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        if byte == b"\0":
            stream.truncate(8 + len(header) + n)
        else:
            stream.write(byte * n)


def overwrite(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda place: (place / name).write_bytes(data)


def below(name: str, data: bytes) -> Callable[[Path], object]:
    def change(place: Path) -> None:
        (place / name).parent.mkdir()
        (place / name).write_bytes(data)

    return change


@pytest.mark.parametrize("change", [
    overwrite("model.safetensors", b"1" * 999 + b"2"),
    overwrite("model.safetensors", b"1" * 1001),
    overwrite("more.safetensors", b"1" * 10),
    overwrite("hf_quant_config.json", b'{"kv_cache_quant_algo": "FP8"}'),
    overwrite("kv_cache_scales.json", b'{"kv_cache": {}}'),
    overwrite("adapter_config.json", b'{"r": 8}'),
    overwrite("preprocessor_config.json", b'{"image_mean": [0, 0, 0]}'),
    overwrite("modeling_own.py", b"pass"),
    overwrite("config.json", b'{"rope_theta": 2}'),
    below("vision/model.safetensors", b"1" * 10),
    below("experts/config.json", b"{}"),
    lambda place: (place / "model.safetensors").rename(place / "model.bin"),
], ids=["bytes", "size", "another file", "quantisation", "scales", "adapter", "images", "code", "configuration", "a folder below",
        "a configuration below", "name"])
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
    (place / "tokenizer.json").write_text("{}")
    (place / "checkpoint.bin").mkdir()
    (place / ".git").mkdir()
    (place / ".git" / "old.bin").write_bytes(b"0")
    (place / "itself").symlink_to(place)
    assert digest_of(place) == before == digest_of(folder(tmp_path / "elsewhere"))
    assert weights_of(str(place)) == weights_of(str(folder(tmp_path / "other" / "model")))


def test_an_engine_that_tells_of_the_configuration_leaves_the_file_out(tmp_path: Path) -> None:
    place = folder(tmp_path / "model")
    told, whole = digest_of(place, config=False), digest_of(place)
    (place / "config.json").write_text('{"rope_theta": 2}')
    assert digest_of(place, config=False) == told and digest_of(place) != whole


@pytest.mark.parametrize("name", ["model.safetensors", "model.bin", "model.gguf"])
def test_one_byte_anywhere_of_300_mb_makes_another_model(tmp_path: Path, name: str) -> None:
    place = tmp_path / "model"
    place.mkdir()
    file, size = place / name, 300 * MIB
    if name.endswith("safetensors"):
        safetensors(file, size)
    else:
        with open(file, "wb") as stream:
            stream.truncate(size)
    before, seen = digest_of(place), set()
    # Between the pieces that a sample would look at, and at both ends.
    places = (size // 3 + 12_345, file.stat().st_size - 1) if name == "model.safetensors" else (size // 7 + 1,)
    for at in places:
        with open(file, "r+b") as stream:
            stream.seek(at)
            stream.write(b"1")
        seen.add(digest_of(place))
    assert len(seen | {before}) == 1 + len(places)


# ---- half a model has no identity

def index(place: Path, *shards: str, name: str = "model.safetensors.index.json") -> None:
    (place / name).write_text(json.dumps({"metadata": {}, "weight_map": {f"w{i}": shard for i, shard in enumerate(shards)}}))


def refused(place: Path, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        digest_of(place)
    assert "fetch" in str(caught.value) or "git lfs pull" in str(caught.value) or "again" in str(caught.value)


def test_a_shard_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    for shard in ("a.safetensors", "b.safetensors"):
        safetensors(place / shard, 100)
    index(place, "a.safetensors", "b.safetensors", "a.safetensors")
    digest_of(place)
    (place / "b.safetensors").unlink()
    refused(place, "lacks b.safetensors")
    index(place, "a.safetensors")
    digest_of(place)
    (place / "model.safetensors.index.json").write_text('{"weight_map": {"w": "a.safe')
    refused(place, "no JSON")


def test_a_shard_of_a_number_must_be_there_without_an_index_too(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    for i in range(1, 4):
        safetensors(place / f"model-0000{i}-of-00003.safetensors", 100)
    digest_of(place)
    (place / "model-00002-of-00003.safetensors").unlink()
    refused(place, "lacks model-00002-of-00003.safetensors")


def test_an_index_of_a_format_that_was_not_fetched_is_no_lack(tmp_path: Path) -> None:
    place = folder(tmp_path / "model")
    index(place, "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin", name="pytorch_model.bin.index.json")
    digest_of(place)
    (place / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match="no weights in"):
        digest_of(place)


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    file = place / "model.safetensors"
    safetensors(file, 10_000)
    whole = file.read_bytes()
    digest_of(place)
    for n, words in ((len(whole) - 1, "its header tells of"), (len(whole) // 2, "its header tells of"), (50, "middle of its header"),
                     (8, "middle of its header"), (0, "is empty")):
        file.write_bytes(whole[:n])
        refused(place, words)
    file.write_bytes(whole + b"0")
    refused(place, "its header tells of")
    file.write_bytes(whole[:8] + b"{" + b"x" * (len(whole) - 9))
    refused(place, "header that cannot be read")
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    refused(place, "pointer of Git LFS")


def test_an_archive_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    file = place / "pytorch_model.bin"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", bytes(10_000))
    digest_of(place)
    file.write_bytes(file.read_bytes()[:-100])
    refused(place, "ends in the middle of its archive")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder(tmp_path / "model")
    real = builtins.open

    def closed(file: Any, *more: Any, **named: Any) -> Any:
        if str(file).endswith("model.safetensors"):
            raise PermissionError(13, "Permission denied", str(file))
        return real(file, *more, **named)

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "open", closed)
        with pytest.raises(ConfigurationError, match=r"model.safetensors cannot be read \(Permission denied\).*chmod"):
            digest_of(place)
    (place / "model.safetensors").unlink()
    (place / "model.safetensors").symlink_to(tmp_path / "nothing")
    refused(place, "cannot be read")


def test_one_of_several_shards_that_an_engine_is_given_stands_for_all(tmp_path: Path) -> None:
    for i in (1, 2):
        (tmp_path / f"m-0000{i}-of-00002.gguf").write_bytes(b"GGUF" + bytes([i]))
    first, seen = tmp_path / "m-00001-of-00002.gguf", set()
    seen.add(digest_of(first))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"GGUF" + bytes([3]))
    seen.add(digest_of(first))
    assert len(seen) == 2
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    refused(first, "lacks m-00002-of-00002.gguf")


# ---- where models are

def hub(tmp_path: Path, name: str, files: dict[str, tuple[str, bytes]], commit: str = COMMIT, branch: str = "main") -> Path:
    """Hugging Face's cache with a model in it; `files`: name -> (name of its blob, its bytes)."""
    root = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    for folder_of in (snapshot, root / "blobs", root / "refs"):
        folder_of.mkdir(parents=True, exist_ok=True)
    (root / "refs" / branch).write_text(commit)
    for file, (blob, data) in files.items():
        (root / "blobs" / blob).write_bytes(data)
        (snapshot / file).parent.mkdir(exist_ok=True)
        (snapshot / file).unlink(missing_ok=True)
        (snapshot / file).symlink_to(os.path.relpath(root / "blobs" / blob, (snapshot / file).parent))
    return snapshot


def test_a_model_is_found_in_hugging_faces_cache_by_branch_and_commit(tmp_path: Path) -> None:
    assert place_of("org/name") is None
    snapshot = hub(tmp_path, "org/name", {"model.safetensors": ("a" * 64, b"1")})
    assert place_of("org/name") == place_of("org/name", "main") == place_of("org/name", COMMIT) == snapshot
    assert place_of("org/name", "other") is None and place_of("org/name", "../main") is None
    assert place_of("../org/name") is None
    (snapshot / "model.safetensors").unlink()  # its configuration alone is no model
    assert place_of("org/name") is None
    elsewhere = hub(tmp_path / "more", "org/name", {"model.safetensors": ("b" * 64, b"1")})
    assert place_of("org/name", cache=str(tmp_path / "more" / "hub")) == elsewhere


def test_a_model_that_is_not_here_needs_a_commit_or_the_operators_word(tmp_path: Path) -> None:
    assert place_of(str(tmp_path / "nowhere")) is None
    assert weights_of("nobody/nothing", COMMIT) == f"nobody/nothing@{COMMIT}"
    assert weights_of("nobody/nothing", told="7") != weights_of("nobody/nothing", told="8")
    here = folder(tmp_path / "model")
    assert len({weights_of(str(here), told=word) for word in (None, "7", "8")}) == 3
    (here / "model.safetensors").unlink()  # the remaining files are read, and do not identify the weights
    assert weights_of(str(here), told="7") != weights_of(str(here), told="8")
    for revision in (None, "main", "v1"):
        with pytest.raises(ConfigurationError, match="are not on this machine.*option revision"):
            weights_of("nobody/nothing", revision)
