"""Pages of every host pool and layout of SGLang, byte for byte."""
from __future__ import annotations

import pytest
import sglang_pools as p
from sglang_pools import torch

from libkvbm.sglang.pages import cut_into, head_groups_of, pieces_of

POOLS = [pytest.param(p.mha, layout, id=f"mha-{layout}") for layout in p.MHA_LAYOUTS] + \
    [pytest.param(p.mla, layout, id=f"mla-{layout}") for layout in p.MLA_LAYOUTS] + \
    [pytest.param(lambda layout: p.mha(layout, v_dim=16), layout, id=f"mha-v16-{layout}")
     for layout in ("page_first", "page_first_direct")] + \
    [pytest.param(lambda layout: p.mha(layout, dtype=torch.float8_e4m3fn), "page_first", id="mha-fp8"),
     pytest.param(lambda layout: p.dsa(layout)[1], "page_first", id="dsa-indexer-page_first"),
     pytest.param(lambda layout: p.dsa(layout)[1], "layer_first", id="dsa-indexer-layer_first"),
     pytest.param(p.mamba, "page_first", id="mamba"),
     pytest.param(lambda layout: p.mamba(layout, side_state=True), "page_first", id="mamba-side-state")]


def attach(pool):
    store = p.backend(pool, is_mla_model="MLA" in type(pool).__name__)
    return store, store._stores["kv"].bytes


@pytest.mark.parametrize("make, layout", POOLS)
def test_what_was_set_comes_back_byte_for_byte_and_nothing_else_is_touched(make, layout):
    pool = make(layout)
    n = pool.size // pool.page_size - 2
    keys = p.page_keys(n)
    store, page_bytes = attach(pool)
    p.scramble(pool)
    before = p.snapshot(pool)
    assert store.batch_set_v1(keys, p.slots(pool, *range(n))) == [True] * n
    for tensor in p.tensors_of(pool):
        tensor.view(torch.uint8).bitwise_not_()
    assert store.batch_get_v1(keys, p.slots(pool, *range(n))) == [True] * n
    restored = [(tensor == was) for tensor, was in zip(p.snapshot(pool), before)]
    assert sum(int(same.sum()) for same in restored) == n * page_bytes
    for tensor, was, same in zip(p.snapshot(pool), before, restored):
        assert torch.equal(tensor[~same], was[~same].bitwise_not())
    store.close()


@pytest.mark.parametrize("make, layout", POOLS)
def test_pages_may_come_back_into_other_places(make, layout):
    pool = make(layout)
    keys, moved = p.page_keys(4), p.page_keys(4, "moved")
    store, page_bytes = attach(pool)
    p.scramble(pool)
    before = p.snapshot(pool)
    assert store.batch_set_v1(keys, p.slots(pool, 0, 1, 2, 3)) == [True] * 4
    p.wipe(pool)
    assert store.batch_get_v1(keys, p.slots(pool, 6, 5, 4, 7)) == [True] * 4
    assert store.batch_set_v1(moved, p.slots(pool, 6, 5, 4, 7)) == [True] * 4
    p.wipe(pool)
    assert store.batch_get_v1(moved, p.slots(pool, 0, 1, 2, 3)) == [True] * 4
    same = sum(int(((tensor == was) & (was != 0)).sum()) for tensor, was in zip(p.snapshot(pool), before))
    assert same > 4 * page_bytes * 0.98  # all but the zeros among random bytes
    store.close()


@pytest.mark.parametrize("layout", p.MHA_LAYOUTS[:4])
def test_a_record_is_the_flat_page_that_sglang_makes(layout):
    pool = p.mha(layout)
    store = p.backend(pool)
    p.scramble(pool)
    keys = p.page_keys(3)
    store.batch_set_v1(keys, p.slots(pool, 0, 1, 2))
    for page, key in enumerate(keys):
        flat = store.get(key, pool.get_dummy_flat_data_page())
        assert torch.equal(flat.view(torch.uint8),
                           pool.get_data_page(page * pool.page_size).contiguous().view(torch.uint8))
    store.close()


@pytest.mark.parametrize("make", [p.mha, p.mla])
@pytest.mark.parametrize("layout", ("layer_first", "page_first", "page_first_direct"))
def test_pools_are_used_in_place(make, layout):
    pool = make(layout)
    pieces = pieces_of(pool)
    inside = range(pool.kv_buffer.data_ptr(), pool.kv_buffer.data_ptr() + pool.kv_buffer.nbytes + 1)
    assert pieces and all(piece.data.data_ptr() in inside for piece in pieces)
    assert sum(piece.bytes for piece in pieces) == pool.get_dummy_flat_data_page().nbytes


def test_pools_whose_pages_do_not_lie_at_a_stride_are_not_used_in_place():
    class Moving:
        shared_allocation_domain = object()

    assert pieces_of(Moving()) is None
    pool = p.mha("page_first")
    honest = pool.get_page_buffer_meta
    pool.get_page_buffer_meta = lambda indices: ([at + (4096 if indices[0] else 0) for at in honest(indices)[0]],
                                                 honest(indices)[1])
    assert pieces_of(pool) is None  # strides that end outside of the buffer
    assert p.mamba(side_state=True).slot_state_buffers and pieces_of(p.mamba(side_state=True)) is None


@pytest.mark.parametrize("most", [1, 100, 4096, 5000, 1 << 20])
def test_cutting_keeps_every_byte_in_order(most):
    pieces = pieces_of(p.mha("layer_first"))
    records = cut_into(pieces, most) if most > 1 else cut_into(pieces[:1], 1)[:5]
    if most > 1:
        assert sum(piece.bytes for record in records for piece in record) == sum(piece.bytes for piece in pieces)
        at = [(piece.data.data_ptr() + i) for record in records for piece in record for i in (0, piece.bytes - 1)]
        assert at == sorted(at)
    assert all(sum(piece.bytes for piece in record) <= most for record in records)


@pytest.mark.parametrize("block", [4096, 5000, 8192, 20480])
@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_pages_larger_than_a_block_are_cut_and_come_back(layout, block):
    pool = p.mha(layout)
    store = p.backend(pool, options=p.extra(block_bytes=block))
    keys = p.page_keys(8)
    p.scramble(pool)
    before = p.snapshot(pool)
    pages = range(8)
    assert store.batch_set_v1(keys, p.slots(pool, *pages)) == [True] * 8
    pool.kv_buffer.view(torch.uint8).bitwise_not_()
    assert store.batch_exists(keys) == 8
    assert store.batch_get_v1(keys, p.slots(pool, *pages)) == [True] * 8
    flat = store.get(keys[5])
    assert torch.equal(flat.view(torch.uint8), pool.get_data_page(5 * p.PAGE).contiguous().view(torch.uint8))
    pool2 = p.mha(layout)
    pool2.kv_buffer.view(torch.uint8).copy_(before[0])
    for page in pages:
        assert torch.equal(pool.get_data_page(page * p.PAGE), pool2.get_data_page(page * p.PAGE)) or \
            torch.equal(pool.get_data_page(page * p.PAGE).contiguous().view(torch.uint8),
                        pool2.get_data_page(page * p.PAGE).contiguous().view(torch.uint8))
    assert store.set(p.page_keys(1, "flat")[0], flat)
    assert torch.equal(store.get(p.page_keys(1, "flat")[0]).view(torch.uint8), flat.view(torch.uint8))
    store.close()


@pytest.mark.parametrize("mine, theirs", [((0, 1), (1, 4)), ((0, 2), (1, 4)), ((1, 2), (2, 4)), ((1, 2), (1, 2)),
                                          ((0, 2), (2, 4))])
def test_head_groups_are_shared_between_tensor_parallel_sizes(tmp_path, mine, theirs):
    """tp_lcm_size: what a rank with more heads stored, a rank with fewer finds, and only its own heads."""
    heads, lcm = 8, 4
    disk = p.extra(disk=str(tmp_path / "disk"), disk_capacity="64MiB", block_bytes="16KiB")
    big, small = p.mha("page_head", heads=heads // mine[1]), p.mha("page_head", heads=heads // theirs[1])
    keys = p.page_keys(3)
    p.scramble(big)
    first = p.backend(big, options=dict(disk), tp_rank=mine[0], tp_size=mine[1], tp_lcm_size=lcm)
    assert len(head_groups_of(big, lcm // mine[1])) == lcm // mine[1]
    assert first.batch_set_v1(keys, p.slots(big, 0, 1, 2)) == [True] * 3
    first.close()
    second = p.backend(small, options=dict(disk), tp_rank=theirs[0], tp_size=theirs[1], tp_lcm_size=lcm)
    begin, end = heads // theirs[1] * theirs[0], heads // theirs[1] * (theirs[0] + 1)
    offset = heads // mine[1] * mine[0]
    if offset <= begin and end <= offset + heads // mine[1]:
        assert second.batch_exists(keys) == 3
        assert second.batch_get_v1(keys, p.slots(small, 4, 5, 6)) == [True] * 3
        for there, here in zip((0, 1, 2), (4, 5, 6)):
            assert torch.equal(small.kv_buffer[:, here].view(torch.uint8),
                               big.kv_buffer[:, there, begin - offset:end - offset].view(torch.uint8))
    else:
        assert second.batch_exists(keys) == 0
        assert second.batch_get_v1(keys, p.slots(small, 4, 5, 6)) == [False] * 3
    second.close()


def test_slots_that_are_no_whole_pages_are_refused():
    pool = p.mha("page_first")
    store = p.backend(pool)
    keys = p.page_keys(2)
    for wrong in (p.slots(pool, 0, 1) + 1, p.slots(pool, 0), p.slots(pool, 0, 1).flip(0), p.slots(pool, 0, 400),
                  p.slots(pool, 0, 1) - p.PAGE):
        assert store.batch_set_v1(keys, wrong) == [False, False]
        assert store.batch_get_v1(keys, wrong) == [False, False]
    assert store.batch_exists(keys) == 0
    store.close()
