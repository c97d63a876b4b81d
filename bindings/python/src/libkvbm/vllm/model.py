"""Which model an engine runs: equal for two engines exactly if their KV of equal tokens is."""
from __future__ import annotations

import hashlib
import json
import os
from typing import Any

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_WHOLE = 64 << 20
_PIECE = 64 << 10
_PIECES = 256
# Rotary embeddings of which vLLM takes the factors for long or for short prompts by the longest that it is to serve.
_BY_LENGTH = ('"longrope"', '"su"')


def model_name(vllm_config: Any) -> str:
    """Readable, and told apart from models of the same name by what it was made of: a digest of the model's
    configuration and, for weights in a folder, of their bytes. Of files above 64 MiB 257 pieces of 64 KiB are read,
    evenly spaced, with the size."""
    model = vllm_config.model_config
    config = {key: value for key, value in model.hf_config.to_dict().items() if not key.startswith("_")}
    config.pop("transformers_version", None)
    facts: dict[str, Any] = {"config": config, "dtype": str(model.dtype), "quantization": str(model.quantization)}
    load_format = str(getattr(vllm_config.load_config, "load_format", ""))
    if load_format == "dummy":
        facts["dummy"] = model.seed
    if vllm_config.speculative_config is not None:
        facts["draft"] = str(vllm_config.speculative_config.model)
    if any(kind in json.dumps(config, default=str) for kind in _BY_LENGTH):
        facts["max_model_len"] = model.max_model_len
    name = str(model.model)
    if os.path.isdir(name):
        facts["weights"] = "" if load_format == "dummy" else weights_digest(name)
        name = os.path.basename(os.path.normpath(name))
    elif os.path.isfile(name):
        facts["weights"] = "" if load_format == "dummy" else file_digest(name).hex()
        name = os.path.basename(name)
    else:
        facts["name"] = [name, str(model.revision), str(getattr(model.hf_config, "_commit_hash", None))]
    text = json.dumps(facts, sort_keys=True, default=str)
    return f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def weights_digest(folder: str) -> str:
    """Of the weights in a folder, by name and content."""
    digest = hashlib.sha256()
    for name in sorted(os.listdir(folder)):
        if name.endswith(_WEIGHTS):
            digest.update(name.encode() + b"\0" + file_digest(os.path.join(folder, name)))
    return digest.hexdigest()


def file_digest(path: str) -> bytes:
    """Of a file's size and content, or of pieces of that."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
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
