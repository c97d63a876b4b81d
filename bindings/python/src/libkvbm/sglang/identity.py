"""What a page's bytes depend on beside its tokens, for a host pool of SGLang on one rank."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from ..engine import Identity
from ..engine.weights import weights_of
from .interface import found
from .pages import Piece, page_tokens

_FACTS = ("layer_num", "target_layer_num", "num_mamba_layers", "start_layer", "end_layer", "head_num", "head_dim",
          "v_head_dim", "kv_lora_rank", "qk_rope_head_dim", "kv_cache_dim", "item_bytes", "state_page_bytes",
          "indexer_page_stride_size", "storage_format_tag")
_ARGUMENTS = ("model_path", "revision", "dtype", "quantization", "kv_cache_dtype", "speculative_draft_model_path",
              "speculative_draft_model_revision", "json_model_override_args", "quantization_param_path", "modelopt_quant",
              "quantize_and_serve", "rl_quant_profile", "torchao_config", "load_format")
_HASHING = "SGLang page hashes: SHA-256 over token ids, chained"


@dataclass(frozen=True)
class Place:
    """Which part of the model a pool on this rank has."""

    rank: int
    ranks: int
    words: str


def server_facts() -> dict[str, str]:
    """What SGLang's own arguments say of the weights. A name that an operator gave to a model is not enough: other
    weights may be served under it tomorrow."""
    try:
        from sglang.srt.runtime_context import get_server_args
        arguments = get_server_args()
    except (ImportError, ValueError, AttributeError, RuntimeError):
        return {}
    values = {name: getattr(arguments, name, None) for name in _ARGUMENTS}
    facts = {name: str(value) for name, value in values.items() if value is not None}
    if "model_path" in facts:
        facts["model_bytes"] = weights_of(facts["model_path"], facts.get("revision"))
    if "quantization_param_path" in facts:  # scales of an fp8 cache
        facts["scales"] = weights_of(facts["quantization_param_path"])
    # SGLang names those that it is started with by name and path; those that are loaded later by chance.
    adapters = sorted(weights_of(path) for path in map(_path, getattr(arguments, "lora_paths", None) or ()))
    if adapters:
        facts["adapters"] = ", ".join(adapters)
    return facts


def _path(adapter: Any) -> str:
    """Of one entry of --lora-paths: a LoRARef, a table, or text, with or without a name."""
    if isinstance(adapter, Mapping):
        return str(adapter.get("lora_path"))
    return str(getattr(adapter, "lora_path", None) or str(adapter).partition("=")[2] or adapter)


def replicated(config: Any, name: str, pool: Any) -> bool:
    """Whether all ranks of the tensor-parallel group have the same bytes (MLA latents and their indexes). What has
    heads of its own, or is a recurrent state, is each rank's."""
    if not config.is_mla_model or name == "mamba":
        return False
    return not any("MHA" in kind.__name__ or "Mamba" in kind.__name__ for kind in type(pool).__mro__)


def place_of(config: Any, name: str, pool: Any, group: Optional[tuple[int, int]] = None) -> Place:
    """`group` is this one of so many groups of heads in all, where pages are shared by tensor-parallel sizes."""
    cp_rank, cp_size = getattr(config, "attn_cp_rank", 0), getattr(config, "attn_cp_size", 1)
    rank = cp_rank + cp_size * config.pp_rank
    ranks = cp_size * config.pp_size
    words = f"pp {config.pp_rank}/{config.pp_size}, cp {cp_rank}/{cp_size}"
    if replicated(config, name, pool):
        return Place(rank, ranks, f"{words}, the same on all tp ranks")
    if group is not None:
        return Place(rank * group[1] + group[0], ranks * group[1], f"{words}, heads {group[0]}/{group[1]}")
    return Place(rank * config.tp_size + config.tp_rank, ranks * config.tp_size,
                 f"{words}, tp {config.tp_rank}/{config.tp_size}")


def identity_of(config: Any, options: Mapping[str, str], name: str, pool: Any, place: Place, record: tuple[int, int],
                pieces: Sequence[Piece], size: int, heads: int = 1) -> Identity:
    """Of one record of a page of the pool; `record` is its number and how many the page has, `size` its bytes.
    `heads`: the head groups that the pool's pages are cut into."""
    facts = {fact: getattr(pool, fact) for fact in _FACTS if getattr(pool, fact, None) is not None}
    if heads > 1:
        facts["head_num"] = facts["head_num"] // heads
    layout = [f"SGLang {found()}", f"pool {name} {type(pool).__name__}", f"layout {pool.layout}",
              f"record {record[0]}/{record[1]}", f"pieces {[piece.bytes for piece in pieces] or 'flat'}", place.words]
    layout += [f"{fact} {value}" for fact, value in sorted(facts.items())]
    layout += [f"{fact} {value}" for fact, value in sorted(options.items())]
    model = str(config.model_name or options["model_path"])
    return Identity(model=model, element=str(getattr(pool, "dtype", "bytes")), layout="; ".join(layout),
                    tokens=page_tokens(pool), bytes=size, rank=place.rank, ranks=place.ranks, hashing=_HASHING)
