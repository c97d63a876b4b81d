"""Facts that a page of SGLang's host pools depends on, besides its tokens."""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from ..aside import ConfigurationError
from ..hashes import check_hashes
from ..identity import Identity
from ..weights import place_of, unknown, weights_of
from . import plain

HASHING = "SGLang page hashes: SHA-256 over token ids, chained"
_POOL = ("layer_num", "target_layer_num", "num_mamba_layers", "start_layer", "end_layer", "head_num", "head_dim",
         "v_head_dim", "kv_lora_rank", "qk_rope_head_dim", "kv_cache_dim", "item_bytes", "state_page_bytes",
         "indexer_page_stride_size", "storage_format_tag")
# Of SGLang's arguments: what decides what the model computes, in which precision its KV is kept and in which order.
_MODEL = ("model_path", "revision", "dtype", "quantization", "kv_cache_dtype", "qsa_indexer_dtype", "json_model_override_args",
          "quantization_param_path", "modelopt_quant", "modelopt_checkpoint_restore_path", "quantize_and_serve",
          "rl_quant_profile", "torchao_config", "load_format", "model_loader_extra_config", "custom_weight_loader", "model_impl",
          "model_config_parser", "decrypted_config_file", "context_length", "is_embedding", "rope_scaling")
_DRAFT = ("speculative_algorithm", "speculative_draft_model_path", "speculative_draft_model_revision",
          "speculative_draft_load_format", "speculative_draft_model_quantization", "speculative_draft_kv_cache_dtype",
          "speculative_draft_window_size", "speculative_draft_sink_size", "speculative_token_map", "enable_multi_layer_eagle",
          "decrypted_draft_config_file", "uno_lora_path")
_KERNELS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend", "mamba_backend", "mamba_ssm_dtype",
            "enable_mamba_cache_stochastic_rounding", "mamba_cache_philox_rounds", "enable_int8_mamba_checkpoint",
            "int8_mamba_ckpt_size", "linear_attn_backend", "linear_attn_prefill_backend", "enable_linear_replayssm",
            "linear_replayssm_cache_len", "enable_deepseek_v4_fp4_indexer", "dsa_prefill_backend", "dsa_decode_backend",
            "dsv4_attn_backend", "enable_encoder_swa_bounded_replay", "enable_decoder_swa_bounded_replay", "dllm_algorithm",
            "dllm_algorithm_config", "c128_page_size", "enable_page_major_kv_layout", "disable_hybrid_swa_memory",
            "prefill_only_disable_kv_cache")
_IMAGES = ("mm_process_config", "image_processor_backend", "disable_fast_image_processor", "mm_attention_backend",
           "enable_precise_embedding_interpolation", "trust_mm_content_hashes")
_PARALLEL = ("cp_strategy", "enable_prefill_cp", "enable_cp_tp_group_sharing", "enable_dsa_cache_layer_split",
             "enable_kv_cache_sharding", "enable_cp_decode_attn_tp", "enable_dp_attention", "dcp_size")
_ADAPTERS = ("lora_target_modules", "experts_shared_outer_loras", "lora_use_virtual_experts")
_PATHS = ("quantization_param_path", "decrypted_config_file", "decrypted_draft_config_file", "speculative_token_map",
          "dllm_algorithm_config", "modelopt_checkpoint_restore_path", "uno_lora_path")
# In a model's config.json: it sees or hears.
_SENSES = ("vision_config", "audio_config", "visual", "vision_tower", "mm_vision_tower", "image_token_id", "image_token_index",
           "video_token_id", "audio_token_id")


@dataclass(frozen=True)
class Place:
    """Which part of the model a pool on this rank has."""

    rank: int
    ranks: int
    words: str


def server_facts(arguments: Any, revision: Optional[str] = None, weak_hashes: bool = False, device: str = "") -> dict[str, str]:
    """Facts of the weights and of computing KV in SGLang's arguments (None: unknown here). An operator's name of a
    model is not enough: it may stand for other weights later. `revision` identifies weights that cannot be read here.
    `device` decides SGLang's own choices. Raises ConfigurationError with the remedy. Blocks: while weights are read."""
    names = _MODEL + _DRAFT + _KERNELS + _IMAGES + _PARALLEL + _ADAPTERS
    values = {name: plain(getattr(arguments, name, None)) for name in names}
    facts = {name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
             for name, value in values.items() if value not in (None, "", "auto", [], {})}
    if device:
        facts["device"] = device
    if revision is not None:
        facts["weights"] = revision
    model = facts.get("model_path")
    if model is not None:
        if facts.get("load_format") == "dummy":
            facts["model_bytes"] = f"dummy, seed {getattr(arguments, 'random_seed', None)}"
        else:
            facts["model_bytes"] = weights_of(model, facts.get("revision"), told=revision)
        _check_senses(model, facts, arguments, weak_hashes)
    elif revision is None:
        raise unknown("this engine")
    draft = facts.get("speculative_draft_model_path")
    if draft is not None and draft != model:
        facts["draft_bytes"] = weights_of(draft, facts.get("speculative_draft_model_revision"), told=revision)
    for name in _PATHS:
        if name in facts and Path(facts[name]).exists():
            facts[f"{name} bytes"] = weights_of(facts[name])
    # SGLang names those that it is started with by name and path; those that are loaded later by chance.
    adapters = sorted(weights_of(path, told=revision) for path in map(_path, getattr(arguments, "lora_paths", None) or ()))
    if adapters:
        facts["adapters"] = ", ".join(adapters)
    return facts


def _path(adapter: Any) -> str:
    """Of one entry of --lora-paths: a LoRARef, a table, or text, with or without a name."""
    if isinstance(adapter, Mapping):
        return str(adapter.get("lora_path"))
    return str(getattr(adapter, "lora_path", None) or str(adapter).partition("=")[2] or adapter)


def _check_senses(model: str, facts: Mapping[str, str], arguments: Any, weak_hashes: bool) -> None:
    """SGLang calls an image by 8 bytes of a hash, on GPUs one that is not cryptographic, or by what a client says."""
    place = place_of(model, facts.get("revision"))
    blind = any(getattr(arguments, name, None) for name in ("language_only", "language_model_only"))
    if weak_hashes or blind or getattr(arguments, "enable_multimodal", None) is False or place is None:
        return
    try:
        config = json.loads((place / "config.json").read_bytes())
    except (OSError, ValueError):
        return  # SGLang could not start with it either
    if isinstance(config, dict) and any(config.get(name) is not None for name in _SENSES):
        check_hashes("SGLang", "a hash of each image", False, "start it with --language-model-only", 8)


def check_parallel(config: Any) -> None:
    if getattr(config, "dcp_size", 1) > 1:
        raise ConfigurationError("decode context parallelism is not supported by the kvbm backend: SGLang allows it with its "
                                 "file and mooncake backends alone")


def replicated(config: Any, name: str, pool: Any) -> bool:
    """Whether all ranks of the tensor-parallel group have the same bytes (MLA latents and their indexes). What has
    heads of its own, or is a recurrent state, is each rank's."""
    if not config.is_mla_model or name == "mamba":
        return False
    return not any("MHA" in kind.__name__ or "Mamba" in kind.__name__ for kind in type(pool).__mro__)


def place_of_pool(config: Any, name: str, pool: Any, group: Optional[tuple[int, int]] = None) -> Place:
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


def identity_of(version: str, config: Any, facts: Mapping[str, str], name: str, pool: Any, tokens: int, place: Place,
                record: tuple[int, int], pieces: Sequence[int], size: int, heads: int = 1) -> Identity:
    """Of one record of a page of the pool: `record` is its number and how many the page has, `pieces` their bytes (none: the
    pool copies its pages itself), `size` of all. `heads`: the head groups that the pool's pages are cut into."""
    shape = {fact: getattr(pool, fact) for fact in _POOL if getattr(pool, fact, None) is not None}
    if heads > 1:
        shape["head_num"] = shape["head_num"] // heads
    layout = [f"SGLang {version}", f"pool {name} {type(pool).__name__}", f"layout {pool.layout}",
              f"record {record[0]}/{record[1]}", f"pieces {list(pieces) or 'flat'}", place.words]
    layout += [f"{fact} {value}" for fact, value in sorted(shape.items())]
    layout += [f"{fact} {value}" for fact, value in sorted(facts.items())]
    model = str(config.model_name or facts.get("model_path") or "a model of the operator's")
    return Identity(model=model, element=str(getattr(pool, "dtype", "bytes")), layout="; ".join(layout), tokens=tokens,
                    bytes=size, rank=place.rank, ranks=place.ranks, hashing=HASHING)
