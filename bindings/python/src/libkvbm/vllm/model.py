"""Which model an engine runs: equal for two engines exactly if their KV of equal tokens is."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..engine.weights import digest_of

# Rotary embeddings of which vLLM takes the factors for long or for short prompts by the longest that it is to serve.
_BY_LENGTH = ('"longrope"', '"su"')
# Of vLLM's configuration of its cache: element types of layers and states that differ from the one that all plug-ins say.
_CACHE = ("kv_cache_dtype_skip_layers", "mamba_cache_dtype", "mamba_ssm_cache_dtype")
# What is made of an image beside what its hash and the model's files say.
_IMAGES = ("mm_processor_kwargs", "mm_device_do_normalize", "mm_encoder_attn_dtype", "video_pruning_rate",
           "video_pruning_method")


def model_name(vllm_config: Any) -> str:
    """Readable, and told apart from models of the same name by what it was made of: a digest of the model's
    configuration as vLLM has made it and, for weights on this machine, of their bytes (libkvbm.engine.weights)."""
    model = vllm_config.model_config
    config = {key: value for key, value in model.hf_config.to_dict().items() if not key.startswith("_")}
    config.pop("transformers_version", None)
    facts: dict[str, Any] = {"config": config, "dtype": str(model.dtype), "quantization": str(model.quantization)}
    facts |= _set(vllm_config.cache_config, _CACHE) | _set(getattr(model, "multimodal_config", None), _IMAGES)
    load_format = str(getattr(vllm_config.load_config, "load_format", ""))
    if load_format == "dummy":
        facts["dummy"] = model.seed
    if vllm_config.speculative_config is not None:
        facts["draft"] = str(vllm_config.speculative_config.model)
    if any(kind in json.dumps(config, default=str) for kind in _BY_LENGTH):
        facts["max_model_len"] = model.max_model_len
    name = str(model.model)
    place = Path(name)
    if place.exists():
        facts["weights"] = "" if load_format == "dummy" else digest_of(place, config=False)
        name = place.absolute().name
        # Of weights that are streamed from elsewhere the folder has no more than the configuration.
        if getattr(model, "model_weights", ""):
            facts["from"] = str(model.model_weights)
    else:
        facts["name"] = [name, str(model.revision), str(getattr(model.hf_config, "_commit_hash", None)),
                         str(getattr(model, "code_revision", None))]
    text = json.dumps(facts, sort_keys=True, default=str)
    return f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _set(config: Any, names: tuple[str, ...]) -> dict[str, str]:
    """Those of a configuration's fields that it has, and that are set."""
    return {name: str(getattr(config, name)) for name in names if getattr(config, name, None)}
