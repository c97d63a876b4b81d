"""What tells two models, or two adapters, of one name apart: a name says where weights were found, not which they are.

One digest for the plug-ins of all engines: of the weights in a folder or a file, and of what beside them says how they
are read. Of files above 64 MiB 257 pieces of 64 KiB are read, evenly spaced, with the size.
"""
from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Optional

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".tensors")
# Code of its own changes what a model computes; quantisers keep scales and kinds in files of theirs; and what becomes of
# an image, whose hash is of the image alone, processors have in theirs.
_CONFIG = "config.json"
_CONFIGURATIONS = ("adapter_config.json", "hf_quant_config.json", "params.json", "preprocessor_config.json",
                   "processor_config.json", "quant_config.json", "quantize_config.json",
                   "video_preprocessor_config.json")
_CODE = ".py"
_WHOLE = 64 << 20
_PIECE = 64 << 10
_PIECES = 256


def digest_of(place: Path, config: bool = True) -> str:
    """Of a file of weights, or of a folder of them: by name and content. `config` is false for models whose engine says
    itself what it has made of their config.json. OSError where something cannot be read."""
    digest = hashlib.sha256()
    # A file is its content: the same weights in two places are the same.
    for file in sorted(place.iterdir()) if place.is_dir() else [place]:
        if not place.is_dir():
            digest.update(_file(file))
        elif _counts(file, config) and file.is_file():
            digest.update(file.name.encode() + b"\0" + _file(file))
    return digest.hexdigest()


def weights_of(model: str, revision: Optional[str] = None) -> str:
    """The name of a model or an adapter with its revision, and the digest of its files where it is on this machine, as a
    path or in Hugging Face's cache. A model that is loaded in another way is known by name and revision alone."""
    place = place_of(model, revision)
    name = f"{model}@{revision}" if revision else model
    if place is None:
        return name
    return f"{Path(model).name if Path(model).exists() else name} {digest_of(place)[:32]}"


def place_of(model: str, revision: Optional[str] = None) -> Optional[Path]:
    """Where the files of a model or an adapter are; None: not on this machine."""
    try:
        path = Path(model).expanduser()
        if path.exists():
            return path
        from huggingface_hub import try_to_load_from_cache
        found = [try_to_load_from_cache(model, name, revision=revision) for name in (_CONFIG, *_CONFIGURATIONS)]
    except Exception:  # not installed, or not a name that it accepts
        return None
    return next((Path(file).parent for file in found if isinstance(file, str)), None)


def _counts(file: Path, config: bool) -> bool:
    return file.suffix in (*_WEIGHTS, _CODE) or file.name in _CONFIGURATIONS or config and file.name == _CONFIG


def _file(file: Path) -> bytes:
    """Of a file's size and content, or of pieces of that."""
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        digest.update(size.to_bytes(8, "little"))
        if size <= _WHOLE:
            while piece := stream.read(1 << 20):
                digest.update(piece)
        else:
            for i in range(_PIECES + 1):
                stream.seek((size - _PIECE) * i // _PIECES)
                digest.update(stream.read(_PIECE))
    return digest.digest()
