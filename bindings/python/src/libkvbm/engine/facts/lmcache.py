"""Facts that LMCache's objects and chunks depend on, besides the hash of their tokens."""
from __future__ import annotations

from typing import Any, Optional, Sequence

from ..aside import ConfigurationError
from ..hashes import check_hashes, python_seed
from ..identity import Identity
from .vllm import run_time_scales

# Hash algorithms of LMCache's server (--hash-algorithm) by hash length, the only information that adapters get.
_BY_LENGTH = {8: "Python's builtin hash", 16: "xxhash", 32: "blake3"}
_CHOOSE = "start lmcache server with --hash-algorithm blake3"
# Inside the engine LMCache cuts every hash to 64 bits.
_KEPT_BYTES = 8


def hashing_of(n_bytes: int, weak_hashes: bool) -> str:
    """How the server names chunks, by the length of a name. 32 bytes are BLAKE3 or SHA-256, of which no two are equal."""
    check_hashes("LMCache", _BY_LENGTH.get(n_bytes, "an unknown hash"), weak_hashes, _CHOOSE, n_bytes)
    return "LMCache" if n_bytes == 32 else f"LMCache {_BY_LENGTH.get(n_bytes)} {n_bytes} seed {python_seed()}"


def engine_hashing(config: Any, weak_hashes: bool) -> str:
    """How LMCache inside the engine names chunks."""
    algorithm = str(getattr(config, "pre_caching_hash_algorithm", "builtin"))
    shown = "Python's builtin hash" if algorithm == "builtin" else algorithm
    check_hashes("LMCache inside the engine", shown, weak_hashes, "use lmcache server with KvbmL2Adapter", _KEPT_BYTES)
    return f"LMCache {algorithm} {_KEPT_BYTES} seed {python_seed()}"


def check_engine(vllm_config: Optional[Any]) -> None:
    """Refuses an engine with requests that LMCache's names do not distinguish."""
    scales = None if vllm_config is None else run_time_scales(vllm_config)
    if scales is not None:
        raise ConfigurationError(scales)
    for what, option, there in (
            ("adapters", "--enable-lora", getattr(vllm_config, "lora_config", None)),
            ("embeddings", "--enable-prompt-embeds",
             getattr(getattr(vllm_config, "model_config", None), "enable_prompt_embeds", False))):
        if there:
            raise ConfigurationError(f"LMCache's names of chunks know nothing of {what}, and this engine takes them ({option}): "
                                     "serve the model without them, or use KvbmConnector instead of LMCache")


def object_identity(version: str, model: str, element: str, kv_rank: int, group: int, replicated: bool, piece_bytes: int,
                    made_by: str) -> Identity:
    """Of an object of the server. `model` says which weights; `kv_rank` is four numbers of 8 bits: world size, global rank,
    local world size, local rank."""
    rank = without_rank(kv_rank) if replicated else kv_rank
    return Identity(model=model, element=element, layout=f"object of LMCache {version}, rank {rank:08x}, group {group}", tokens=0,
                    bytes=piece_bytes, rank=rank >> 16 & 0xFF, ranks=max(rank >> 24 & 0xFF, 1), hashing=made_by)


def chunk_identity(version: str, model: str, element: str, shapes: Sequence[Sequence[int]], latent: bool, tokens: int,
                   worker: int, ranks: int, piece_bytes: int, made_by: str) -> Identity:
    """Of a chunk of LMCache inside an engine."""
    return Identity(model=model, element=element,
                    layout=f"chunk of LMCache {version}, {[list(shape) for shape in shapes]}, {'latent' if latent else 'K, V'}",
                    tokens=tokens, bytes=piece_bytes, rank=worker, ranks=ranks, hashing=made_by)


def native_identity(version: str, model: str, piece_bytes: int, made_by: str) -> Identity:
    """Facts of an object of the native adapter; its text has everything else."""
    return Identity(model=model, element="", layout=f"object of LMCache {version}'s native adapter", tokens=0, bytes=piece_bytes,
                    hashing=made_by)


def without_rank(kv_rank: int) -> int:
    """Of objects that all ranks have alike."""
    return kv_rank & ~0x00FF00FF
