"""Distinguishes models, or adapters, with the same name: a name tells where weights were found, not what they are.

One digest for the plug-ins of all engines: of every byte of the weights in a folder or a file, and of the files that
tell how to read them. Files are read once (libkvbm.engine.digest_cache). An incomplete checkpoint has no digest.
"""
from __future__ import annotations

import hashlib
import logging
import os
import re
from pathlib import Path
from typing import Iterator, Optional

from .aside import ConfigurationError
from .checkpoint import check_whole, is_weights
from .file_digests import digests_of, unreadable

_CONFIG = "config.json"
# All other JSON files count: quantisers have scales and kinds in their own files, and image processors their settings,
# which the hash of an image does not contain.
_SAYS_NOTHING = ("added_tokens.json", "all_results.json", "chat_template.json", "eval_results.json", "generation_config.json",
                 "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "train_results.json",
                 "trainer_state.json", "vocab.json")
_CODE = ".py"  # changes what a model computes
_MOST_FILES = 1 << 16
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def digest_of(place: Path, config: bool = True, *, log: Optional[logging.Logger] = None) -> str:
    """Digest of a file or folder of weights: of names and contents. `config` is false if the engine reports its
    effective version of config.json itself. Raises ConfigurationError with the remedy if a file is missing, truncated,
    unreadable or changed meanwhile. Blocks: for reading new files; about a second per GB and processor, or the time of
    the disk."""
    files = _files(place, config)
    if not any(map(is_weights, files)) and place.is_dir():
        raise ConfigurationError(f"there are no weights in {place}: give the folder that has them")
    check_whole(place if place.is_dir() else place.parent, files)
    known = digests_of(files, f"the weights in {place}", log)
    # A file is its content: the same weights in two places are the same.
    if files.keys() == {place.name} and not place.is_dir():
        return known[place.name].hex()
    whole = hashlib.sha256()
    for name in sorted(known):
        whole.update(name.encode(errors="surrogateescape") + b"\0" + known[name])
    return whole.hexdigest()


def weights_of(model: str, revision: Optional[str] = None, *, told: Optional[str] = None,
               log: Optional[logging.Logger] = None) -> str:
    """Returns the name of a model or an adapter with its revision. The digest of its files follows if they are on this
    machine, as a path or in Hugging Face's cache. Otherwise a revision must identify it: a commit, or the operator's
    text `told`, which counts in any case. Raises ConfigurationError if none does."""
    place = place_of(model, revision)
    name = f"{model}@{revision}" if revision else model
    words = [] if told is None else [f"told {told}"]
    if place is not None and (told is None or any(map(is_weights, _files(place, True))) or not place.is_dir()):
        shown = Path(model).name if place == Path(model).expanduser() else name
        return " ".join([shown, digest_of(place, log=log), *words])
    if words:
        return " ".join([name, *words])
    if is_commit(revision):
        return name
    raise unknown(model)


def code_of(model: str, revision: Optional[str] = None) -> str:
    """The code that a model brings along, where another model uses it; by its revision, if that is a commit and it is not
    on this machine."""
    for snapshot in _snapshots(model, revision, None):
        files = {name: file for name, file in _files(snapshot, True).items() if name.endswith(_CODE)}
        known = digests_of(files, f"the code of {model}")
        return hashlib.sha256(b"".join(name.encode() + b"\0" + known[name] for name in sorted(known))).hexdigest()
    if is_commit(revision):
        return f"{model}@{revision}"
    raise ConfigurationError(f"the code of {model} is not in Hugging Face's cache, so that nothing can tell which it is: give a "
                             "commit as the revision of the code")


def unknown(model: str) -> ConfigurationError:
    return ConfigurationError(f"the weights of {model} are not on this machine, as a path or in Hugging Face's cache, so that "
                              "nothing can tell which they are: start the engine with the path of a folder, with a commit "
                              "as the revision, or say in libkvbm's option revision which weights these are, and another "
                              "text whenever they change")


def place_of(model: str, revision: Optional[str] = None, cache: Optional[str] = None) -> Optional[Path]:
    """Where the files of a model or an adapter are: a path, or a snapshot with weights in Hugging Face's cache, or in
    `cache`, which is one as well. None: not on this machine."""
    try:
        path = Path(model).expanduser()
        if model and path.exists():
            return path
    except (OSError, RuntimeError, ValueError):  # too long for a path, no home, a zero byte
        pass
    return next((snapshot for snapshot in _snapshots(model, revision, cache) if any(map(is_weights, _files(snapshot, True)))),
                None)


def is_commit(revision: Optional[str]) -> bool:
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def _snapshots(model: str, revision: Optional[str], cache: Optional[str]) -> Iterator[Path]:
    if not _HUB_NAME.fullmatch(model) or ".." in model:
        return
    for root in (cache, _hub()):
        folder = Path(root or os.devnull, f"models--{model.replace('/', '--')}")
        snapshot = folder / "snapshots" / _commit(folder, revision or "main")
        if snapshot.is_dir():
            yield snapshot


def _hub() -> str:
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        home = os.environ.get("HF_HOME") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface")
        return os.path.expanduser(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    return str(HF_HUB_CACHE)


def _commit(folder: Path, revision: str) -> str:
    """The commit of a branch or a tag of a model in the cache, if it is one."""
    if ".." in revision or os.path.isabs(revision):
        return os.devnull
    try:
        return (folder / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        return revision


def _files(place: Path, config: bool) -> dict[str, Path]:
    """The counted files of a folder by name, in order; for a single file, the file and its other shards."""
    if not place.is_dir():
        shards = re.fullmatch(r"(.*\D|)\d+(-of-\d+\D.*)", place.name)
        if shards is None:
            return {place.name: place}
        pattern = re.compile(f"{re.escape(shards[1])}\\d+{re.escape(shards[2])}")
        return {file.name: file for file in _listed(place.parent) if pattern.fullmatch(file.name) and file.is_file()}
    found: dict[str, Path] = {}
    for name, file in _walk(place, "", set()):
        if _counts(name, config):
            found[name] = file
            if len(found) > _MOST_FILES:
                raise ConfigurationError(f"there are more than {_MOST_FILES} files of models in {place}: give the folder of one")
    return dict(sorted(found.items()))


def _counts(name: str, config: bool) -> bool:
    base = name.rpartition("/")[2]
    if base.endswith(".json"):
        return base not in _SAYS_NOTHING and (config or name != _CONFIG)
    return is_weights(base) or base.endswith(_CODE)


def _walk(folder: Path, before: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, Path]]:
    """Files in a folder and those below it, but hidden ones (.git, .cache); a folder that is linked in twice once."""
    try:
        status = os.stat(folder)
    except OSError as error:
        raise unreadable(folder, error) from error
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    for file in _listed(folder):
        if file.name.startswith("."):
            continue
        if file.is_dir():
            yield from _walk(file, f"{before}{file.name}/", seen)
        elif file.is_file() or file.is_symlink() and not file.exists():
            yield before + file.name, file  # dangling links too: reading reports them


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from error
