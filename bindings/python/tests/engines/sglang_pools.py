"""SGLang's own host pools, small and in host memory, for tests. Importing this skips the tests where SGLang is not
installed."""
from __future__ import annotations

import hashlib
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="torch is not installed", exc_type=ImportError)
    pytest.importorskip("libkvbm.sglang", reason="pip install sglang==0.5.23 with what it depends on",
                        exc_type=ImportError)
    from sglang.srt.mem_cache.device_pool_info import MambaStateBufferInfo
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    from sglang.srt.mem_cache.hybrid_cache.hybrid_pool_assembler import _mha_host_inputs
    from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool, MHATokenToKVPool, MLATokenToKVPool
    from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
    from sglang.srt.mem_cache.pool_host.dsa import DSAIndexerPoolHost, make_dsa_indexer_pool_decl
    from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
    from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

    from sglang.srt.runtime_context import get_parallel

    from libkvbm.sglang import KvbmStorage

PAGE = 16
PAGES = 8
MHA_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head", "page_unified")
MLA_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_unified")


def page_keys(n, salt=""):
    """A chain like SGLang's: each hash depends on those before."""
    keys, before = [], salt
    for i in range(n):
        before = hashlib.sha256(f"{before}{i}".encode()).hexdigest()
        keys.append(before)
    return keys


def _host(make):
    with host_memory_budget_scope(1 << 30):  # SGLang wants 10 GiB left over otherwise
        return make()


def mha_device(heads=4, dim=32, v_dim=None, layers=3, dtype=None):
    return MHATokenToKVPool(PAGE * PAGES, PAGE, dtype or torch.bfloat16, heads, dim, layers, "cpu", False,
                            v_head_dim=v_dim, start_layer=0, end_layer=layers)


def mha(layout, device=None, **shape):
    device = device or mha_device(**shape)
    cls, info, more = _mha_host_inputs(device)
    return _host(lambda: cls(info, 2.0, 0, PAGE, layout, pin_memory=False, **more))


def mla_device(layers=3):
    return MLATokenToKVPool(PAGE * PAGES, PAGE, torch.bfloat16, 64, 16, layers, "cpu", False, start_layer=0,
                            end_layer=layers)


def mla(layout, device=None, layers=3):
    device = device or mla_device(layers)
    return _host(lambda: MLATokenToKVPoolHost(
        device.get_device_pool_infos()[0].buffer_info, 2.0, 0, PAGE, layout, pin_memory=False,
        device_capacity_tokens=device.size, start_layer=0, end_layer=layers, target_layer_num=layers))


def dsa(layout):
    """The latent pool of a sparse-attention model, and the pool of its index keys."""
    page, layers = 64, 2
    with get_parallel().override(attn_dcp_size=1, attn_dcp_rank=0):
        return _dsa(layout, page, layers)


def _dsa(layout, page, layers):
    device = DSATokenToKVPool(page * PAGES, page, 64, torch.bfloat16, 16, layers, "cpu", 128, False, 80,
                              start_layer=0, end_layer=layers, skip_topk_layers=[False] * layers)
    anchor = _host(lambda: MLATokenToKVPoolHost(
        device.get_device_pool_infos()[0].buffer_info, 2.0, 0, page, layout, pin_memory=False,
        device_capacity_tokens=device.size, start_layer=0, end_layer=layers, target_layer_num=layers))
    return anchor, _host(lambda: DSAIndexerPoolHost(make_dsa_indexer_pool_decl(device), anchor, pin_memory=False))


def mamba(layout="page_first", slots=8, side_state=False):
    info = MambaStateBufferInfo(temporal=torch.zeros(2, slots, 4, 8, 8), conv=(torch.zeros(2, slots, 16, 3),),
                                extra_checkpoint_buffers=(torch.zeros(slots, 5, dtype=torch.int32),)
                                if side_state else ())
    return _host(lambda: MambaPoolHost(info, 2.0, 0, device_capacity=slots, pin_memory=False, layout=layout))


def tensors_of(pool):
    found = []
    for name in ("kv_buffer", "index_k_with_scale_buffer", "temporal_buffer", "conv_buffer", "slot_state_buffers"):
        held = getattr(pool, name, None)
        found += [t for t in (held if isinstance(held, (list, tuple)) else [held]) if t is not None]
    return list({tensor.data_ptr(): tensor for tensor in found}.values())


def scramble(pool, seed=0):
    """Random bytes all over the pool."""
    random = torch.Generator().manual_seed(seed)
    for tensor in tensors_of(pool):
        flat = tensor.view(torch.uint8).reshape(-1) if tensor.dim() else tensor
        flat.copy_(torch.randint(0, 256, flat.shape, dtype=torch.uint8, generator=random))


def snapshot(pool):
    return [tensor.view(torch.uint8).clone() for tensor in tensors_of(pool)]


def restored(pool, before):
    return all(torch.equal(tensor.view(torch.uint8), kept) for tensor, kept in zip(tensors_of(pool), before))


def wipe(pool):
    for tensor in tensors_of(pool):
        tensor.zero_()


def extra(**options):
    """Nothing computes between a miss and a store of a test: loads are weighed only where that is asked for."""
    return {"backend_name": "kvbm", "module_path": "libkvbm.sglang", "class_name": "KvbmStorage", "interface_v1": 1,
            "settings": {"host.capacity": "16MiB"}, "weigh": False, "revision": "1", **options}


def config(*, options=None, **facts):
    return HiCacheStorageConfig(**{
        "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
        "is_mla_model": False, "enable_storage_metrics": False, "is_page_first_layout": False, "model_name": "model",
        "extra_config": options or extra(), **facts})


def backend(pool, *, options=None, others=None, **facts):
    """The backend, attached as SGLang attaches it."""
    made = KvbmStorage(config(options=options, **facts), {})
    made.register_mem_pool_host(pool)
    for name, other in (others or {}).items():
        made.register_mem_host_pool_v2(other, name)
    made.on_host_pools_registered()
    return made


def slots(pool, *pages):
    """Slots of these pages of the pool, in order."""
    size = pool.page_size
    return torch.cat([torch.arange(page * size, (page + 1) * size) for page in pages])
