"""Facts that AIBrix's blocks depend on, besides their keys."""
from __future__ import annotations

from typing import Any, Optional, Sequence

from ..aside import ConfigurationError
from ..hashes import check_hashes
from ..identity import Identity
from ..tokens import canonical_identity
from ..weights import digest_of, place_of
from .vllm import run_time_scales

# Key builders that use the tokens themselves, or BLAKE2b of them: their keys are unique.
TOKENS = ("hex", "raw", "tokens")


def model_of(text: str) -> str:
    """The operator's text about the weights. If its first word names files on this machine, as a path or as
    name@revision, their digest is added. Blocks: while they are read, the first time."""
    word = (text.split() or [""])[0]
    name, _, revision = word.partition("@")
    for model, of in ((text, None), (word, None), (name, revision or None)):
        place = place_of(model, of) if model else None
        if place is not None:
            return f"{text} {digest_of(place)}"
    return text


def hashing(conn_id: str, key_builder: Any, weak_hashes: bool) -> str:
    """AIBrix's connection id, and the hash of its keys. The id contains its namespace, the first and the last head and
    layer, the layout, and the kind of its keys."""
    signature = str(getattr(key_builder, "signature", "none"))
    hasher = getattr(key_builder, "hasher", None)
    algorithm = type(key_builder).__name__ if hasher is None else type(hasher).__name__
    if signature not in TOKENS:
        check_hashes("AIBrix", algorithm, weak_hashes, "let libkvbm.aibrix.install() name them")
    return f"{conn_id} {signature} {algorithm}"


def identity_of(version: str, model: str, spec: Any, ranks: int, made_by: str, engine: str = "") -> Identity:
    """`engine` is what the engine in this process says of its model, where that is known. Head ids alone do not say which
    heads they are: with more ranks than heads, ranks count copies."""
    tensor = spec.tensor_spec
    layout = (f"aibrix {version} {spec.block_layout.name} [heads {_span(tensor.heads)}][layers {_span(tensor.layers)}]"
              f"[dim {tensor.head_size}]")
    return Identity(model=f"{model} {engine}" if engine else model, element=_element(spec), layout=layout,
                    tokens=spec.block_ntokens, bytes=spec.block_nbytes, ranks=ranks, hashing=made_by)


def canonical_of(text: str, spec: Any, ranks: int, option: str) -> Identity:
    """That of libkvbm.engine.tokens, where AIBrix's blocks are what it says; `option` is what asks for it. `text` begins with
    a path of the weights or with name@revision of such in Hugging Face's cache."""
    model = model_of(text)
    if model == text:
        raise ConfigurationError(f"{option} needs weights that are files on this machine, so that others can tell that theirs "
                                 f"are the same: begin KVBM_MODEL with their path, and not with {text!r}")
    tensor = spec.tensor_spec
    heads, layers = list(tensor.heads), list(tensor.layers)
    whole = heads == list(range(len(heads))) and layers == list(range(len(layers)))
    if spec.block_layout.name != "LCND" or not whole or ranks != 1:
        raise ConfigurationError(f"{option} needs blocks of all layers and heads in the layout LCND, on one rank: these are "
                                 f"{spec.block_layout.name}, heads {_span(heads)}, layers {_span(layers)}, ranks {ranks}")
    identity = canonical_identity(model, _element(spec), layers=len(layers), heads=len(heads), head_dim=tensor.head_size,
                                  tokens=spec.block_ntokens)
    if identity.bytes != spec.block_nbytes:
        raise ConfigurationError(f"a block has {spec.block_nbytes} bytes instead of {identity.bytes}: {option} does not know "
                                 "this layout")
    return identity


def check_engine(vllm_config: Optional[Any]) -> None:
    """Refuses an engine with requests that AIBrix's keys do not distinguish."""
    if vllm_config is None:
        return
    scales = run_time_scales(vllm_config)
    if scales is not None:
        raise ConfigurationError(scales)
    model = vllm_config.model_config
    images = getattr(model, "multimodal_config", None)
    beside = [what for what, there in (
        ("adapters (--enable-lora)", getattr(vllm_config, "lora_config", None)),
        ("images", images is not None and not getattr(images, "language_model_only", False)),
        ("embeddings (--enable-prompt-embeds)", getattr(model, "enable_prompt_embeds", False))) if there]
    if beside:
        raise ConfigurationError(f"AIBrix's keys know of tokens alone, and this engine takes {' and '.join(beside)}, of which "
                                 "KV depends as well: serve the model without them (--language-model-only for images), or use "
                                 "KvbmConnector instead of AIBrix")


def _element(spec: Any) -> str:
    return str(spec.block_dtype).removeprefix("torch.")


def _span(ids: Sequence[int]) -> str:
    first, last = ids[0], ids[-1]
    return f"{first}-{last}" if list(ids) == list(range(first, last + 1)) else ",".join(map(str, ids))
