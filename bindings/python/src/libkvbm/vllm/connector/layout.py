"""How vLLM holds its KV cache, as libkvbm describes it."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional

import torch

from ... import CachePart, Component, Element, Form, Geometry, Part, Shard, Tensor
from ...engine import ConfigurationError, Identity
from ...engine.facts import vllm as facts
from ..kernels import kernels_of
from ..pages import pages_identity
from ..place import Place
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
    place: Place


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
    place = Place.of(view for view in kv_caches.values() if isinstance(view, torch.Tensor))
    return [_group(vllm_config, kv_cache_config, kv_caches, group, place) for group in kv_cache_config.kv_cache_groups]


def _group(vllm_config: Any, kv_cache_config: Any, kv_caches: dict[str, Any], group: Any, place: Place) -> Group:
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
        view = _by_blocks(name, view, int(kv_cache_config.num_blocks))
        tensors.append(_pages(name, view, int(getattr(spec, "unpadded_page_size_bytes", 0)), place))
        views.append(view)
        shapes.append((name, tuple(view.shape[1:]), _order(view), str(view.dtype), _backend(vllm_config, name)))
    text = facts.layers_text(interface.minor(), getattr(spec, "sliding_window", None),
                             getattr(spec, "attention_chunk_size", None), shapes)
    return Group(int(spec.block_size), tensors, sum(t.page_bytes for t in tensors), text,
                 _backend(vllm_config, group.layer_names[0]), views, list(group.layer_names), place)


def _order(view: torch.Tensor) -> tuple[int, ...]:
    return tuple(sorted(range(1, view.dim()), key=lambda axis: (-view.stride(axis), axis)))


def _by_blocks(name: str, view: torch.Tensor, n_blocks: int) -> torch.Tensor:
    """A layer with a row for each of the scheduler's blocks; the kernels may cut each into several of their own."""
    if view.shape[0] == n_blocks:
        return view
    if n_blocks == 0 or view.shape[0] % n_blocks != 0:
        raise Unsupported(f"layer {name} has {view.shape[0]} blocks instead of {n_blocks}")
    return view.unflatten(0, (n_blocks, -1))


def _pages(name: str, view: torch.Tensor, needed: int, place: Place) -> Tensor:
    """The layer's blocks as bytes, wherever its view lies in the engine's memory."""
    dense = 1
    for axis in reversed(_order(view)):
        if view.shape[axis] > 1 and view.stride(axis) != dense:
            raise Unsupported(f"a block of layer {name} is not in one piece")
        dense *= view.shape[axis]
    item = view.element_size()
    page, stride = dense * item, view.stride(0) * item
    if page < needed:
        raise Unsupported(f"a block of layer {name} is said to have {needed} bytes, and {page} are shown")
    return place.tensor(view, (view.shape[0] - 1) * stride + page, stride, page)


def _backend(vllm_config: Any, layer: str) -> str:
    kernels = kernels_of(vllm_config, layer)
    if kernels is None:
        raise Unsupported(f"the attention kernels of layer {layer}, which order a block as suits them, are not known")
    return kernels


def identity(vllm_config: Any, options: Options, model: str, group: Group, rank: int, ranks: int) -> Identity:
    cache = vllm_config.cache_config
    if options.identity != "engine" and group.place.on_device:
        raise ConfigurationError(f"identity {options.identity} is for vLLM on CPUs, and the KV cache is on "
                                 f"{group.place.name}: leave it out")
    if options.identity == "pages":
        return pages_identity(vllm_config, options.library, group.layers, group.tokens, group.block_bytes)
    if options.identity == "tokens":
        return canonical.identity(facts.told_name(vllm_config, options.model), group.views, group.tokens, ranks)
    return facts.attached(cache, model, group.text, group.tokens, group.block_bytes, rank, ranks,
                          facts.hashing(cache, options.library.weak_hashes))


@dataclass
class Whole:
    """The cache for sessions, in which the ranks of both sides may hold different heads of it. Blocks are moved whole:
    kernels for CPUs order the tokens within one as they like."""

    name: str
    geometry: Geometry
    part: CachePart
    tokens: int
    record_bytes: int
    place: Place
    views: list[torch.Tensor]


# Of views [block][head][token][K and V]: which of the last three lies outermost in memory.
_FORMS: dict[tuple[int, ...], Form] = {(1, 2, 3): Form.PACKED_HND, (2, 1, 3): Form.PACKED_NHD}


def whole(vllm_config: Any, model: str, groups: list[Group], rank: int, ranks: int) -> Whole:
    if len(groups) != 1:
        raise Unsupported(f"it has {len(groups)} groups of layers, and a hand-off knows one")
    group = groups[0]
    first = group.views[0]
    element = _ELEMENTS.get(first.dtype)
    # With a single head or token in a block both orders are the same bytes, and HND is said.
    form = _FORMS.get(_order(first))
    same = all(view.shape == first.shape and view.dtype == first.dtype and _order(view) == _order(first)
               for view in group.views)
    if element is None or form is None or not same or first.dim() != 4 or first.shape[3] % 2 != 0:
        raise Unsupported(f"a hand-off needs layers of one shape [block][head][token][K and V], and these are "
                          f"{tuple(first.shape)} of {first.dtype}")
    heads, total = int(first.shape[1]), int(vllm_config.model_config.get_total_num_kv_heads())
    shard = Shard(layers=len(group.views), first_head=rank * total // ranks, heads=heads)
    geometry = Geometry(group.tokens, [Component(element=element, layers=len(group.views), heads=total,
                                                 head_dim=int(first.shape[3]) // 2)])
    what = f"{model} {vllm_config.cache_config.cache_dtype} {_text(group)}"
    tensors = [Tensor(tensor.data, block_stride=tensor.block_stride) for tensor in group.tensors]
    return Whole(f"hand-off {what} blocks of {group.tokens}", geometry,
                 CachePart(tensors, form, Part(0, shard)), group.tokens, geometry.record_bytes(0, shard), group.place,
                 group.views)


def _text(group: Group) -> str:
    """As Group.text, without what differs between ranks."""
    first = group.views[0]
    return (f"vllm {interface.minor()} {group.backend} {len(group.views)} layers {first.shape[2]} {first.shape[3]} "
            f"{first.dtype} {_order(first)}")


def block_tokens(kv_cache_config: Any) -> tuple[int, list[int]]:
    """Tokens of what a hash of vLLM names, and of a block in each group of layers."""
    sizes = [int(group.kv_cache_spec.block_size) for group in kv_cache_config.kv_cache_groups]
    hashed: Optional[int] = getattr(kv_cache_config, "hash_block_size", None)
    return int(hashed or math.gcd(*sizes)), sizes
