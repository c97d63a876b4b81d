"""Facts in vLLM's configuration that its KV blocks depend on, besides their tokens."""
from __future__ import annotations

import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any, Optional, Sequence

from ..aside import ConfigurationError
from ..hashes import CRYPTOGRAPHIC, check_hashes, python_seed
from ..identity import Identity
from ..weights import code_of, digest_of, is_commit, place_of, unknown, weights_of
from . import fields_of, plain

# Rotary embeddings of which vLLM takes the factors for long or for short prompts by the longest that it is to serve.
_BY_LENGTH = ('"longrope"', '"su"')
# Weights that are read from the files of the model, or made up. All other ways of loading need the operator's word.
_FROM_FILES = ("auto", "bitsandbytes", "fastsafetensors", "gguf", "hf", "instanttensor", "mistral", "npcache", "pt",
               "runai_streamer", "runai_streamer_sharded", "safetensors", "sharded_state")
# Fields that do not affect KV, or are covered elsewhere: overrides are in hf_config, the name in the files' digest.
_MODEL = frozenset((
    "allow_deprecated_quantization", "allowed_local_media_path", "allowed_media_domains", "config_format",
    "disable_cascade_attn", "enable_cumem_allocator", "enable_nccl_comm_suspend", "enable_prompt_embeds",
    "enable_return_routed_experts", "enable_sleep_mode", "enable_trace_replay", "enforce_eager", "generation_config",
    "hf_config", "hf_config_path", "hf_image_processor_config", "hf_overrides", "hf_text_config", "hf_token",
    "io_processor_plugin", "logits_processors", "logprobs_mode", "max_logprobs", "max_model_len", "model", "model_weights",
    "multimodal_config", "override_generation_config", "pooler_config", "renderer_num_workers", "return_sampling_mask",
    "revision", "seed", "served_model_name", "skip_tokenizer_init", "sleep_mode_backend", "sleep_mode_offload_cudagraph",
    "sleep_preserve_parameter_names", "spec_target_max_model_len", "tokenizer", "tokenizer_mode", "tokenizer_revision",
    "trust_remote_code", "use_fp64_gumbel"))
_CACHE = frozenset((
    "block_size", "enable_mamba_shared_prefix_checkpoint", "enable_prefix_caching", "gpu_memory_utilization",
    "is_attention_free", "kv_cache_memory_bytes", "kv_offloading_backend", "kv_offloading_size", "mamba_page_size_padded",
    "num_cpu_blocks", "num_gpu_blocks", "num_gpu_blocks_override", "prefix_cache_retention_interval",
    "prefix_caching_hash_algo", "prefix_match_unit", "simple_cpu_offload_num_blocks", "skip_page_size_padded",
    "user_specified_block_size"))
_ATTENTION = frozenset((
    "flash_attn_max_num_splits_for_cuda_graph", "hisparse_config", "indexer_tp_shard_min_rows",
    "sparse_mla_prefill_workspace_factor", "tokenspeed_mla_min_split_kv", "tq_max_kv_splits_for_cuda_graph"))
_SPECULATIVE = frozenset((
    "disable_eagle_block_drop", "disable_lookahead_block_hashes", "disable_padded_drafter_batch", "draft_load_config",
    "draft_model_config", "draft_parallel_config", "draft_sample_method", "enable_adaptive_verification", "enforce_eager",
    "fly_entropy_threshold", "fly_entropy_top_k", "fly_window_size", "model", "num_speculative_tokens_per_batch_size",
    "prompt_lookup_max", "prompt_lookup_min", "rejection_sample_method", "revision", "synthetic_acceptance_length",
    "synthetic_acceptance_rates", "target_model_config", "target_parallel_config", "use_local_argmax_reduction", "xpress_topc"))
_IMAGES = frozenset((
    "allow_missing_mm_embeddings", "enable_mm_embeds", "interleave_mm_strings", "language_model_only", "limit_per_prompt",
    "mm_encoder_fp8_scale_path", "mm_encoder_fp8_scale_save_margin", "mm_encoder_fp8_scale_save_path", "mm_encoder_only",
    "mm_encoder_tp_mode", "mm_ipc_gpu_memory_gb", "mm_processor_cache_gb", "mm_processor_cache_type", "mm_processor_device",
    "mm_shm_cache_max_object_size_mb", "mm_tensor_ipc", "skip_mm_profiling"))
_ADAPTERS = frozenset(("default_mm_loras", "fully_sharded_loras", "max_cpu_loras", "max_lora_cls_labels", "max_lora_rank",
                       "max_loras", "specialize_active_lora"))
_PARALLEL = ("cp_kv_cache_interleave_size", "dcp_kv_cache_interleave_size", "decode_context_parallel_size",
             "prefill_context_parallel_size")


def model_name(vllm_config: Any, revision: Optional[str] = None, *, log: Optional[logging.Logger] = None) -> str:
    """Name of a model; equal for two engines exactly if their KV of equal tokens is equal. It is readable, and contains
    a digest of vLLM's effective configuration and of the bytes of the weights. `revision` identifies weights that
    cannot be read here. Raises ConfigurationError with the remedy if the weights cannot be identified. Blocks: while
    the weights are read, the first time (libkvbm.engine.weights)."""
    model = vllm_config.model_config
    config = {key: value for key, value in model.hf_config.to_dict().items() if not key.startswith("_")}
    config.pop("transformers_version", None)
    facts: dict[str, Any] = {"config": config, "model": fields_of(model, _MODEL)}
    facts["cache"] = fields_of(vllm_config.cache_config, _CACHE)
    facts["attention"] = fields_of(getattr(vllm_config, "attention_config", None), _ATTENTION)
    facts["mamba"] = fields_of(getattr(vllm_config, "mamba_config", None))
    facts["diffusion"] = fields_of(getattr(vllm_config, "diffusion_config", None))
    facts["additional"] = plain(getattr(vllm_config, "additional_config", None) or {})
    parallel = {name: getattr(getattr(vllm_config, "parallel_config", None), name, 1) for name in _PARALLEL}
    facts["parallel"] = {name: size for name, size in parallel.items() if size != 1}
    facts["images"] = _images(getattr(model, "multimodal_config", None))
    adapters = fields_of(getattr(vllm_config, "lora_config", None), _ADAPTERS)
    facts["adapters"] = {name: value for name, value in adapters.items() if value}
    facts["draft"] = _draft(vllm_config.speculative_config, str(model.model), log)
    if any(kind in json.dumps(config, default=str) for kind in _BY_LENGTH):
        facts["max_model_len"] = model.max_model_len
    facts["weights"] = _weights(vllm_config, revision, log)
    facts["told"] = revision
    # An absent field means the same as an unknown one.
    facts = {name: value for name, value in facts.items() if value}
    text = json.dumps(facts, sort_keys=True, default=str)
    return f"{Path(str(model.model)).absolute().name}@{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def told_name(vllm_config: Any, text: str) -> str:
    """The operator's name of the model, for plug-ins of other engines (identity tokens), with the digest of its files,
    which they read as well."""
    model, load = vllm_config.model_config, vllm_config.load_config
    place = place_of(str(model.model), getattr(model.hf_config, "_commit_hash", None) or model.revision,
                     getattr(load, "download_dir", None))
    if place is None or str(getattr(load, "load_format", "auto")) not in _FROM_FILES:
        raise ConfigurationError("identity tokens needs weights that are files on this machine, so that others can tell that "
                                 f"theirs are the same: {model.model} has none")
    return f"{text} {digest_of(place)}"


def _weights(vllm_config: Any, revision: Optional[str], log: Optional[logging.Logger]) -> list[str]:
    """Which weights the engine has: their bytes; or what says so where they are not files."""
    model, load = vllm_config.model_config, vllm_config.load_config
    name, form = str(model.model), str(getattr(load, "load_format", "auto"))
    how = [form, json.dumps(plain(getattr(load, "model_loader_extra_config", None) or {}), sort_keys=True)]
    if form == "dummy":
        return [*how, str(model.seed)]
    streamed = str(getattr(model, "model_weights", "") or "")
    if form in _FROM_FILES and not streamed:
        commit = getattr(model.hf_config, "_commit_hash", None)
        asked = commit if is_commit(commit) else model.revision
        place = place_of(name, asked, getattr(load, "download_dir", None))
        if place is not None:
            return [*how, digest_of(place, config=False, log=log), *_code(model)]
        if is_commit(asked):
            return [*how, name, str(asked), *_code(model)]
    if revision is None:
        raise unknown(streamed or (name if form in _FROM_FILES else f"{name}, which are loaded by {form},"))
    return [*how, streamed or name, f"told {revision}"]


def _code(model: Any) -> list[str]:
    """The code of a model that is stored with another model ("org/name--file.Class")."""
    classes = model.hf_config.to_dict().get("auto_map") or {}
    if not getattr(model, "trust_remote_code", False) or not isinstance(classes, dict):
        return []
    places = {str(one).partition("--")[0] for one in classes.values() if "--" in str(one)}
    return [code_of(place, getattr(model, "code_revision", None)) for place in sorted(places)]


def _draft(speculative: Any, target: str, log: Optional[logging.Logger]) -> dict[str, Any]:
    """Facts of a draft model, which has its KV in the same blocks; empty for drafts without a model."""
    if speculative is None or not getattr(speculative, "model", None):
        return {}
    model = str(speculative.model)
    facts = fields_of(speculative, _SPECULATIVE)
    if model != target:
        facts["weights"] = weights_of(model, getattr(speculative, "revision", None), log=log)
    return facts


def _images(config: Any) -> dict[str, Any]:
    facts = fields_of(config, _IMAGES)
    scales = getattr(config, "mm_encoder_fp8_scale_path", None)
    if scales:
        facts["scales"] = digest_of(Path(str(scales)))
    return facts


def run_time_scales(vllm_config: Any) -> Optional[str]:
    """Why the cache's bytes mean something in this process alone; None: they do not. Scales of a checkpoint are part of its
    weights; those that a vLLM computes from the first prompts it sees are in no other process."""
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        return ("vLLM computes the scales of its fp8 cache at run time (calculate_kv_scales), and what is stored with the "
                "scales of one start would be read with those of another: leave --calculate-kv-scales out, and use a "
                "checkpoint that has scales")
    return None


def check_awake(vllm_config: Any) -> None:
    """Refuses an engine that may unmap its attached KV cache. A transfer in progress would then access an illegal
    address, which ends the use of the device for the whole process."""
    if getattr(vllm_config.model_config, "enable_sleep_mode", False):
        raise ConfigurationError("enable_sleep_mode unmaps the KV cache, which libkvbm has attached and may be copying: leave "
                                 "--enable-sleep-mode out")


def hashing(cache_config: Any, weak_hashes: bool, seed: Optional[str] = None) -> str:
    """How vLLM names blocks; `seed` is what it has made of its seed, where that is known."""
    algorithm = str(getattr(cache_config, "prefix_caching_hash_algo", "sha256"))
    check_hashes("vLLM", algorithm, weak_hashes, "set --prefix-caching-hash-algo sha256 or sha256_cbor")
    # Without a seed vLLM takes a constant for hashes that are cryptographic, and a random one for each process for others.
    return f"vllm {algorithm} seed {seed or python_seed()}"


def pages_hashing(cache_config: Any, weak_hashes: bool) -> str:
    """As hashing, of hashes that several processes make alike."""
    made = hashing(cache_config, weak_hashes)
    if python_seed() is None and str(cache_config.prefix_caching_hash_algo) not in CRYPTOGRAPHIC:
        raise ConfigurationError("identity pages needs hashes that are equal in all processes: set PYTHONHASHSEED, or "
                                 "another prefix_caching_hash_algo than xxhash")
    return made


def offloaded(config: Any, model: str, kernels: str, layout: str, record_bytes: int, made_by: str,
              group: Optional[int] = None) -> Identity:
    """Facts of the blocks of an OffloadingConfig. `kernels` is vLLM's version and the kernels that order the bytes of a
    block. `layout` describes the order of a record, `made_by` the names of blocks. `group` is the group of layers of
    the blocks, None if a record has space for all."""
    parallel = config.parallel
    groups = [g for g in config.groups if group is None or g.group_id == group]
    facts = {"layout": layout, "kernels": kernels, "order": config.kv_cache_layout, "canonical": config.canonical_layout,
             "replicated": getattr(config, "replicated_layout", False), "blocks": config.cache.blocks_per_chunk,
             "hashed": config.cache.tokens_per_hash,
             "groups": [[g.group_id, g.tokens_per_block, _names(g.layer_names)] for g in groups],
             "tp": parallel.tp_size, "pp": parallel.pp_size, "pcp": parallel.pcp_size, "dcp": parallel.dcp_size}
    return Identity(model=model, element=config.model.dtype,
                    layout="vllm " + json.dumps(facts, sort_keys=True, separators=(",", ":")),
                    tokens=groups[0].tokens_per_block * config.cache.blocks_per_chunk, bytes=record_bytes,
                    ranks=parallel.world_size, hashing=made_by)


def layers_text(version: str, window: Any, chunk: Any, layers: Sequence[tuple[str, tuple[int, ...], tuple[int, ...], str, str]],
                ) -> str:
    """Of a group of layers that the engine's cache is attached by: (name, shape of a block, order of its axes in memory,
    element type, kernels) of each."""
    shapes = [f"{name} {shape} {order} {element} {kernels}" for name, shape, order, element, kernels in layers]
    facts = "\n".join([f"vllm {version}", f"window {window}", f"chunk {chunk}", *shapes])
    return f"vllm {layers[0][4]} {len(layers)} layers {hashlib.sha256(facts.encode()).hexdigest()}"


def attached(cache_config: Any, model: str, layout: str, tokens: int, size: int, rank: int, ranks: int, made_by: str) -> Identity:
    """Of blocks of the engine's own cache, on one worker."""
    return Identity(model=model, element=str(cache_config.cache_dtype), layout=layout, tokens=tokens, bytes=size, rank=rank,
                    ranks=ranks, hashing=made_by)


def pages(cache_config: Any, model: str, version: str, kernels: str, layers: Sequence[str], tokens: int, size: int,
          made_by: str) -> Identity:
    """Of blocks that are the pages of all layers, one after the other, which every hook of vLLM's on CPUs can hold."""
    names = hashlib.sha256("\n".join(layers).encode()).hexdigest()[:32]
    layout = f"vllm {version} {kernels} pages of {len(layers)} layers {names}"
    return Identity(model=model, element=str(cache_config.cache_dtype), layout=layout, tokens=tokens, bytes=size,
                    hashing=made_by)


def _names(layers: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(layers).encode()).hexdigest()[:16]


def here() -> Optional[Any]:
    """The configuration of the vLLM that is being started in this process, if one is."""
    config = sys.modules.get("vllm.config")
    current = getattr(config, "get_current_vllm_config_or_none", None)
    return None if current is None else current()
