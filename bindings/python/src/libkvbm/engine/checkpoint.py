"""Whether the files of a checkpoint are all there, and whole: what is half a model has no identity."""
from __future__ import annotations

import json
import os
import posixpath
import re
import zipfile
from pathlib import Path
from typing import BinaryIO, Mapping

from .aside import ConfigurationError
from .file_digests import unreadable

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".tensors", ".npy", ".npz", ".h5", ".msgpack", ".pkl")
_INDEX = ".index.json"
_NUMBERED = re.compile(r"(.*\D|)(\d+)-of-(\d+)(\D.*)")
_POINTER = b"version https://git-lfs.github.com/spec/v1"
# As the library that wrote the format has it.
_MOST_HEADER = 100_000_000
_AGAIN = "fetch the model again"


def is_weights(name: str) -> bool:
    return name.endswith(WEIGHTS)


def check_whole(place: Path, files: Mapping[str, Path]) -> None:
    """ConfigurationError with the remedy, if of these files of a folder (by their names in it) one is missing or cut."""
    for name, file in files.items():
        if name.endswith(_INDEX):
            _check_index(place, name, file, files)
    _check_numbered(place, files)
    for name, file in files.items():
        if is_weights(name):
            _check_file(file)


def _check_index(place: Path, name: str, index: Path, files: Mapping[str, Path]) -> None:
    try:
        found = json.loads(index.read_bytes())
    except OSError as error:
        raise unreadable(index, error) from error
    except ValueError as error:
        raise ConfigurationError(f"{index} is no JSON ({error}), so that nothing can tell which shards belong to the model: "
                                 f"{_AGAIN}") from error
    shards = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        return  # an index of something else
    named = {posixpath.normpath(posixpath.join(posixpath.dirname(name), shard)) for shard in shards.values()}
    missing = sorted(named - files.keys())
    # The index of a format that was not fetched: the weights are there in another one.
    unused = len(missing) == len(named) and any(is_weights(other) for other in files)
    if missing and not unused:
        raise _missing(place, missing, f"{name} names")


def _check_numbered(place: Path, files: Mapping[str, Path]) -> None:
    """Of shards that say how many they are, all are there; they are counted from 0 or 1."""
    groups: dict[tuple[str, str, str], dict[int, str]] = {}
    for name in files:
        numbered = _NUMBERED.fullmatch(name) if is_weights(name) else None
        if numbered:
            before, number, total, behind = numbered.groups()
            groups.setdefault((before, total, behind), {})[int(number)] = number
    for (before, total, behind), numbers in groups.items():
        first = 0 if 0 in numbers else 1
        wanted = range(first, first + int(total))
        if len(wanted) > 65536 or set(numbers) == set(wanted):
            continue
        digits = len(next(iter(numbers.values())))
        missing = [f"{before}{i:0{digits}}-of-{total}{behind}" for i in wanted if i not in numbers]
        if missing:
            raise _missing(place, missing, f"there are others of {total}")


def _missing(place: Path, shards: list[str], why: str) -> ConfigurationError:
    more = f" and {len(shards) - 3} more" if len(shards) > 3 else ""
    return ConfigurationError(f"the model in {place} lacks {', '.join(shards[:3])}{more} ({why}): {_AGAIN}, or remove what is "
                              "left of the format that is not used")


def _check_file(file: Path) -> None:
    try:
        with open(file, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(64)
            if size == 0:
                raise ConfigurationError(f"{file} is empty: {_AGAIN}")
            if head.startswith(_POINTER):
                raise ConfigurationError(f"{file} is a pointer of Git LFS instead of weights: git lfs pull in its folder")
            if file.name.endswith(".safetensors"):
                _check_safetensors(file, head, stream, size)
            elif head.startswith(b"PK\x03\x04") and not zipfile.is_zipfile(stream):
                raise ConfigurationError(f"{file} ends in the middle of its archive: {_AGAIN}")
    except OSError as error:
        raise unreadable(file, error) from error


def _check_safetensors(file: Path, head: bytes, stream: BinaryIO, size: int) -> None:
    """The header says where tensors end. What is none of this format is known by its bytes like any other file."""
    header = int.from_bytes(head[:8], "little")
    if not 2 <= header <= _MOST_HEADER or not b"{".startswith(head[8:9]):
        return
    if header > size - 8:
        raise ConfigurationError(f"{file} has {size} bytes, and ends in the middle of its header: {_AGAIN}")
    stream.seek(8)
    try:
        tensors = json.loads(stream.read(header))
        ends = [int(tensor["data_offsets"][1]) for name, tensor in tensors.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ConfigurationError(f"{file} has a header that cannot be read ({error}): {_AGAIN}") from error
    wanted = 8 + header + max(ends, default=0)
    if size != wanted:
        raise ConfigurationError(f"{file} has {size} bytes, and its header tells of {wanted}: {_AGAIN}")
