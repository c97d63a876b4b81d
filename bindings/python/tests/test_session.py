"""A prefill and a decode node in one process: blocks move layer by layer."""
from __future__ import annotations

import asyncio
import uuid
from typing import Any

import numpy as np
import pytest

import libkvbm

LAYERS, HEADS, DIM, TOKENS = 4, 2, 8, 64


class Side:
    """One node: its cache has a tensor per layer, with blocks of its own size and order."""

    def __init__(self, settings: dict[str, Any], block_tokens: int, form: libkvbm.Form) -> None:
        self.n_blocks = TOKENS // block_tokens
        self.context = libkvbm.Context(settings)
        self.manager = libkvbm.Manager(self.context)
        geometry = libkvbm.Geometry(block_tokens, [libkvbm.Component(layers=LAYERS, heads=HEADS, head_dim=DIM)])
        self.ns = libkvbm.Namespace(self.manager, "my-model, bf16", geometry=geometry)
        per_block = (block_tokens, HEADS) if form == libkvbm.Form.NHD else (HEADS, block_tokens)
        self.kv = [np.zeros((2, self.n_blocks, *per_block, DIM), np.uint16) for _ in range(LAYERS)]
        self.cache = libkvbm.Cache(self.manager, self.ns, self.n_blocks, [libkvbm.CachePart(self.kv, form)])
        self.blocks = list(range(self.n_blocks - 1, -1, -1))

    def close(self) -> None:
        for item in (self.cache, self.ns, self.manager, self.context):
            item.close()


def sides() -> tuple[Side, Side, str]:
    prefill = Side({"node.listen": "127.0.0.1:0"}, 16, libkvbm.Form.NHD)
    address = prefill.manager.node_address()
    return prefill, Side({"node.peers": address}, 8, libkvbm.Form.HND), address


def compute(prefill: Side, layer: int) -> None:
    prefill.kv[layer][:] = (np.arange(prefill.kv[layer].size) + 1000 * layer).reshape(prefill.kv[layer].shape)


def same(prefill: Side, decode: Side, layer: int) -> bool:
    """[K,V][token][head][dim] of both sides, in the order of the tokens."""
    sent = prefill.kv[layer][:, prefill.blocks].reshape(2, TOKENS, HEADS, DIM)
    got = decode.kv[layer][:, decode.blocks].transpose(0, 1, 3, 2, 4).reshape(2, TOKENS, HEADS, DIM)
    return bool((sent == got).all())


def test_layers_arrive_as_they_are_published() -> None:
    prefill, decode, address = sides()
    request = uuid.UUID(int=5)
    with libkvbm.Session(decode.cache, request, decode.blocks, [libkvbm.Source(address)]) as session, \
            libkvbm.Offer(prefill.cache, request, prefill.blocks) as offer:
        assert not session.wait(1_000_000) and not offer.wait(1_000_000)
        for layer in range(LAYERS):
            compute(prefill, layer)
            offer.publish(0, layer, 1)
            assert session.wait_layer(layer, timeout_ns=60_000_000_000)
            assert same(prefill, decode, layer)
        assert session.wait() and offer.wait()
    decode.close()
    prefill.close()


def test_layers_are_told_to_asyncio() -> None:
    prefill, decode, address = sides()

    async def run() -> list[int]:
        layers: list[int] = []
        request = uuid.UUID(int=6).bytes
        session = libkvbm.Session(decode.cache, request, decode.blocks, [libkvbm.Source(address)], notify="asyncio",
                                  on_layer=lambda completion: layers.append(completion.operation))
        offer = libkvbm.Offer(prefill.cache, request, prefill.blocks, notify="asyncio")
        for layer in range(LAYERS):
            compute(prefill, layer)
        offer.publish_all()
        assert isinstance(session.done, asyncio.Future) and isinstance(offer.done, asyncio.Future)
        assert (await session.done).items_done == LAYERS
        assert (await offer.done).op == libkvbm.Op.OFFER
        session.close()
        offer.close()
        return layers

    assert sorted(asyncio.run(run())) == list(range(LAYERS))
    assert all(same(prefill, decode, layer) for layer in range(LAYERS))
    decode.close()
    prefill.close()


def test_an_abort_says_why_on_the_other_side() -> None:
    prefill, decode, address = sides()
    request = uuid.UUID(int=7)
    session = libkvbm.Session(decode.cache, request, decode.blocks, [libkvbm.Source(address)], notify="future")
    offer = libkvbm.Offer(prefill.cache, request, prefill.blocks)
    offer.publish(0, 0, 1)
    assert session.wait_layer(0, timeout_ns=60_000_000_000)
    offer.abort("the prompt was withdrawn")
    with pytest.raises(libkvbm.PeerError, match="withdrawn"):
        session.wait()
    assert session.done is not None and not isinstance(session.done, asyncio.Future)
    with pytest.raises(libkvbm.PeerError):
        session.done.result(10)
    with pytest.raises(libkvbm.ClosedError):
        offer.publish_all()
    session.close()
    with pytest.raises(libkvbm.ClosedError):
        session.wait()
    decode.close()
    prefill.close()


def test_what_does_not_fit_is_refused() -> None:
    prefill, decode, address = sides()
    for refused in (lambda: libkvbm.Offer(prefill.cache, b"short", prefill.blocks),
                    lambda: libkvbm.Offer(prefill.cache, bytes(16), [99]),
                    lambda: libkvbm.Session(decode.cache, bytes(16), decode.blocks, []),
                    lambda: libkvbm.Offer(prefill.cache, bytes(16), prefill.blocks, notify="smoke")):
        with pytest.raises(ValueError):
            refused()
    with pytest.raises(TypeError):
        libkvbm.Offer(prefill.cache, bytes(16), np.zeros(4))
    decode.close()
    prefill.close()
