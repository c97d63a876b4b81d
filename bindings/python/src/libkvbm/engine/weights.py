"""What tells two models of one name apart: a name says where weights were found, not which they are."""
from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Optional

_KINDS = (".safetensors", ".bin", ".gguf", ".pt")
_CONFIGURATIONS = ("config.json", "adapter_config.json")
_SAMPLES = 64
_SAMPLE_BYTES = 4096


def weights_of(model: str, revision: Optional[str] = None) -> str:
    """The name of a model or an adapter with its revision, and, where the weights are files of this machine, a hash of samples of them:
    another training, quantisation or configuration under the same name gives another text. Reads at most 256 KiB of a
    file. A model that is loaded over the network in another way is known by name and revision alone."""
    directory = _directory(model, revision)
    name = f"{model}@{revision}" if revision else model
    one = Path(model)
    if directory is None and not one.is_file():
        return name
    digest = hashlib.sha256()
    for file in [one] if directory is None else sorted(directory.iterdir()):
        if file.name in _CONFIGURATIONS:
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            digest.update(file.read_bytes())
        elif file.suffix in _KINDS:
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            _sample(file, digest)
    # The place does not matter: the same weights in two places are the same.
    return f"{one.name if one.exists() else name} {digest.hexdigest()[:32]}"


def _directory(model: str, revision: Optional[str]) -> Optional[Path]:
    path = Path(model)
    try:
        if path.is_dir():
            return path
        from huggingface_hub import try_to_load_from_cache
        found = [try_to_load_from_cache(model, name, revision=revision) for name in _CONFIGURATIONS]
    except Exception:  # not installed, or not a name that it accepts
        return None
    return next((Path(file).parent for file in found if isinstance(file, str)), None)


def _sample(file: Path, digest: hashlib._Hash) -> None:
    size = file.stat().st_size
    with open(file, "rb") as stream:
        for i in range(_SAMPLES):
            stream.seek(max(size - _SAMPLE_BYTES, 0) * i // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE_BYTES))
