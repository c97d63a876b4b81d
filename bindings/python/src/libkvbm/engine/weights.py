"""What tells two models of one name apart: a name says where weights were found, not which they are."""
from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Optional

_KINDS = (".safetensors", ".bin", ".gguf", ".pt")
_SAMPLES = 64
_SAMPLE_BYTES = 4096


def weights_of(model: str, revision: Optional[str] = None) -> str:
    """The model's name with its revision, and, where the weights are files of this machine, a hash of samples of them:
    another training, quantisation or configuration under the same name gives another text. Reads at most 256 KiB of a
    file. A model that is loaded over the network in another way is known by name and revision alone."""
    directory = _directory(model, revision)
    name = f"{model}@{revision}" if revision else model
    if directory is None:
        return name
    digest = hashlib.sha256()
    config = directory / "config.json"
    if config.is_file():
        digest.update(config.read_bytes())
    for file in sorted(directory.iterdir()):
        if file.suffix in _KINDS:
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            _sample(file, digest)
    # The place does not matter: the same weights in two places are the same.
    return f"{Path(model).name if Path(model).is_dir() else name} {digest.hexdigest()[:32]}"


def _directory(model: str, revision: Optional[str]) -> Optional[Path]:
    path = Path(model)
    try:
        if path.is_dir():
            return path
        from huggingface_hub import try_to_load_from_cache
        found = try_to_load_from_cache(model, "config.json", revision=revision)
    except Exception:  # not installed, or not a name that it accepts
        return None
    return Path(found).parent if isinstance(found, str) else None


def _sample(file: Path, digest: hashlib._Hash) -> None:
    size = file.stat().st_size
    with open(file, "rb") as stream:
        for i in range(_SAMPLES):
            stream.seek(max(size - _SAMPLE_BYTES, 0) * i // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE_BYTES))
