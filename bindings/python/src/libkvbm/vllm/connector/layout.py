"""How vLLM holds its KV cache, as libkvbm describes it."""
from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Optional

import torch

from ... import CachePart, Component, Element, Form, Geometry, Part, Shard, Tensor
from ...engine import ConfigurationError, Identity
from ..pages import pages_identity
from . import canonical, interface
from .options import Options

_ELEMENTS = {torch.bfloat16: Element.BF16, torch.float16: Element.FP16, torch.float32: Element.FP32,
             torch.float8_e4m3fn: Element.FP8_E4M3, torch.float8_e5m2: Element.FP8_E5M2, torch.int8: Element.INT8}
# Kinds of layers of which every block is the KV of its own tokens, and stays so.
_KINDS = ("FullAttentionSpec", "MLAAttentionSpec", "SlidingWindowSpec", "SlidingWindowMLASpec")


class Unsupported(Exception):
    """The engine's cache is held in a way that the connector does not know. The message says how."""


@dataclass
class Group:
    """Layers that share block tables. `text` says everything of the order of a block's bytes."""

    tokens: int
    tensors: list[Tensor]
    block_bytes: int
    text: str
    backend: str
    views: list[torch.Tensor]
    layers: list[str]


def rank_of(vllm_config: Any) -> tuple[int, int]:
    """This worker's tensor-parallel rank, and how many there are."""
    ranks = int(vllm_config.parallel_config.tensor_parallel_size)
    if ranks == 1:
        return 0, 1
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    return int(get_tensor_model_parallel_rank()), ranks


def check_parallel(vllm_config: Any) -> None:
    parallel = vllm_config.parallel_config
    for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"):
        if int(getattr(parallel, name, 1)) != 1:
            raise ConfigurationError(f"{name} is {getattr(parallel, name)}: KvbmConnector knows tensor and data "
                                     "parallelism alone")


def check_identity(options: Options, kv_cache_config: Any) -> None:
    """Refuses an identity that other plug-ins share for a cache that only vLLM's own hashes can name."""
    hashed, sizes = block_tokens(kv_cache_config)
    if options.identity != "engine" and sizes != [hashed]:
        raise ConfigurationError(f"identity {options.identity} needs one group of layers, and a hash for each of its "
                                 f"blocks: there are {len(sizes)} groups of {sizes} tokens, and hashes of {hashed}")


def groups_of(vllm_config: Any, kv_cache_config: Any, kv_caches: dict[str, Any]) -> list[Group]:
    """The engine's cache, by group of layers."""
    return [_group(vllm_config, kv_cache_config, kv_caches, group) for group in kv_cache_config.kv_cache_groups]


def _group(vllm_config: Any, kv_cache_config: Any, kv_caches: dict[str, Any], group: Any) -> Group:
    spec = group.kv_cache_spec
    if type(spec).__name__ not in _KINDS:
        raise Unsupported(f"its layers {group.layer_names[0]}, ... are {type(spec).__name__}, of which libkvbm knows "
                          f"{', '.join(_KINDS)}")
    if not getattr(spec, "prefix_cacheable", True) or not getattr(group, "enable_kv_transfer", True):
        raise Unsupported(f"vLLM keeps its layers {group.layer_names[0]}, ... out of prefix caches")
    tensors, views, shapes = [], [], []
    for name in group.layer_names:
        view = kv_caches.get(name)
        if not isinstance(view, torch.Tensor):
            raise Unsupported(f"layer {name} has no tensor of its own")
        if view.shape[0] != kv_cache_config.num_blocks:
            raise Unsupported(f"layer {name} has {view.shape[0]} blocks instead of {kv_cache_config.num_blocks}")
        tensors.append(_pages(name, view))
        views.append(view)
        shapes.append(f"{name} {tuple(view.shape[1:])} {_order(view)} {view.dtype}")
    backend = _backend(vllm_config, group.layer_names[0])
    window = getattr(spec, "sliding_window", None)
    facts = "\n".join([f"vllm {interface.minor()}", backend, f"window {window}", *shapes])
    return Group(int(spec.block_size), tensors, sum(t.page_bytes for t in tensors),
                 f"vllm {backend} {len(views)} layers {hashlib.sha256(facts.encode()).hexdigest()}",
                 backend, views, list(group.layer_names))


def _order(view: torch.Tensor) -> tuple[int, ...]:
    return tuple(sorted(range(1, view.dim()), key=lambda axis: (-view.stride(axis), axis)))


def _pages(name: str, view: torch.Tensor) -> Tensor:
    """The layer's blocks as bytes, wherever its view lies in the engine's memory."""
    if view.device.type != "cpu":
        raise ConfigurationError(f"the KV cache is on {view.device}, and KvbmConnector reads and writes host memory "
                                 "alone; libkvbm.vllm's OffloadingSpec copies from devices")
    dense = 1
    for axis in reversed(_order(view)):
        if view.shape[axis] > 1 and view.stride(axis) != dense:
            raise Unsupported(f"a block of layer {name} is not in one piece")
        dense *= view.shape[axis]
    item = view.element_size()
    page, stride = dense * item, view.stride(0) * item
    extent = (view.shape[0] - 1) * stride + page
    flat = torch.empty(0, dtype=torch.uint8)
    flat.set_(view.untyped_storage(), view.storage_offset() * item, (extent,), (1,))
    return Tensor(flat, block_stride=stride, page_bytes=page)


def _backend(vllm_config: Any, layer: str) -> str:
    """The attention kernels, which may order a block in a way of their own: those for CPUs do, by instruction set."""
    module = vllm_config.compilation_config.static_forward_context.get(layer)
    backend = getattr(module, "attn_backend", None)
    name = backend.get_name() if backend is not None else "unknown"
    isa = getattr(module, "isa", None)
    if name == "CPU_ATTN" and isa is None:
        raise Unsupported("the instruction set of vLLM's attention is not known")
    return f"{name}/{isa or ''}"


def identity(vllm_config: Any, options: Options, model: str, group: Group, rank: int, ranks: int) -> Identity:
    cache = vllm_config.cache_config
    if options.identity == "pages":
        return pages_identity(vllm_config, group.layers, group.tokens, group.block_bytes)
    if options.identity == "tokens":
        return canonical.identity(options.model, group.views, group.tokens, ranks)
    return Identity(model=model, element=str(cache.cache_dtype), layout=group.text,
                    tokens=group.tokens, bytes=group.block_bytes, rank=rank, ranks=ranks,
                    hashing=str(cache.prefix_caching_hash_algo))


@dataclass
class Whole:
    """The cache for sessions, in which the ranks of both sides may hold different heads of it. Blocks are moved whole:
    kernels for CPUs order the tokens within one as they like."""

    name: str
    geometry: Geometry
    part: CachePart
    tokens: int
    record_bytes: int


def whole(vllm_config: Any, model: str, groups: list[Group], rank: int, ranks: int) -> Whole:
    if len(groups) != 1:
        raise Unsupported(f"it has {len(groups)} groups of layers, and a hand-off knows one")
    group = groups[0]
    first = group.views[0]
    element = _ELEMENTS.get(first.dtype)
    same = all(view.shape == first.shape and view.dtype == first.dtype and _order(view) == (1, 2, 3)
               for view in group.views)
    if element is None or not same or first.dim() != 4 or first.shape[3] % 2 != 0:
        raise Unsupported(f"a hand-off needs layers of one shape [block][head][token][K and V], and these are "
                          f"{tuple(first.shape)} of {first.dtype}")
    heads, total = int(first.shape[1]), int(vllm_config.model_config.get_total_num_kv_heads())
    shard = Shard(layers=len(group.views), first_head=rank * total // ranks, heads=heads)
    geometry = Geometry(group.tokens, [Component(element=element, layers=len(group.views), heads=total,
                                                 head_dim=int(first.shape[3]) // 2)])
    facts = f"{model} {vllm_config.cache_config.cache_dtype} {_text(group)}"
    tensors = [Tensor(tensor.data, block_stride=tensor.block_stride) for tensor in group.tensors]
    return Whole(f"hand-off {facts} blocks of {group.tokens}", geometry,
                 CachePart(tensors, Form.PACKED_HND, Part(0, shard)), group.tokens, geometry.record_bytes(0, shard))


def _text(group: Group) -> str:
    """As Group.text, without what differs between ranks."""
    first = group.views[0]
    return (f"vllm {interface.minor()} {group.backend} {len(group.views)} layers {first.shape[2]} {first.shape[3]} "
            f"{first.dtype}")


def block_tokens(kv_cache_config: Any) -> tuple[int, list[int]]:
    """Tokens of what a hash of vLLM names, and of a block in each group of layers."""
    sizes = [int(group.kv_cache_spec.block_size) for group in kv_cache_config.kv_cache_groups]
    hashed: Optional[int] = getattr(kv_cache_config, "hash_block_size", None)
    return int(hashed or math.gcd(*sizes)), sizes
