"""Coding of buffers: the same bytes as in every language, in place, and never wrong ones."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import libkvbm
from libkvbm import CodecMode, Element, codec

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "tests/data/vectors/codec.json").read_text())
DIM, TOKENS = 64, 96


def page(seed: int = 1) -> Any:
    """bf16 as [head][token][dim]: the high halves of normal floats."""
    values = np.random.default_rng(seed).normal(size=(4, TOKENS, DIM)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


FORM: dict[str, Any] = {"element": Element.BF16, "row": DIM, "rows": TOKENS}


@pytest.mark.parametrize("stream", VECTORS["streams"], ids=lambda stream: stream["name"])
def test_a_vector_decodes_to_its_bytes(stream: dict[str, Any]) -> None:
    coded = bytes.fromhex(stream["coded"])
    info = codec.inspect(coded)
    assert info.mode == codec.mode_by_name(stream["mode"]) and info.element.name == stream["element"].upper()
    assert (info.row, info.rows, info.lossy) == (stream["row"], stream["rows"], stream["lossy"])
    assert (info.raw_bytes, info.coded_bytes) == (stream["raw_bytes"], len(coded))
    raw = codec.decode(coded, allow_lossy=stream["lossy"])
    assert hashlib.sha256(raw).hexdigest() == stream["decoded_sha256"]
    if stream["lossy"]:
        with pytest.raises(libkvbm.UnavailableError) as caught:
            codec.decode(coded)
        assert caught.value.name == "KVBM_ERR_PERMISSION"


@pytest.mark.parametrize("refused", VECTORS["refused"], ids=lambda refused: refused["name"])
def test_a_wrong_vector_is_refused(refused: dict[str, Any]) -> None:
    with pytest.raises(libkvbm.KvbmError) as caught:
        codec.decode(bytes.fromhex(refused["coded"]), allow_lossy=True)
    assert caught.value.status == refused["status"]


@pytest.mark.parametrize("mode", [mode for mode in CodecMode if mode < CodecMode.FP8_E4M3])
def test_lossless_modes_give_back_every_bit(mode: CodecMode) -> None:
    raw = page()
    coded = codec.encode(raw, mode, **FORM)
    assert codec.encode(raw, mode.name.lower(), **FORM) == coded
    assert codec.decode(coded) == raw.tobytes()
    assert (len(coded) < raw.nbytes * 9 // 10) == (mode != CodecMode.OFF)


def test_buffers_are_read_and_written_in_place() -> None:
    raw, back = page(), np.zeros((4, TOKENS, DIM), np.uint16)
    room = bytearray(codec.room(raw.nbytes, **FORM))
    n = codec.encode(raw, "fast", into=room, **FORM)
    assert bytes(room[:n]) == codec.encode(raw, "fast", **FORM)
    assert codec.decode(memoryview(room)[:n], into=back) == raw.nbytes
    assert np.array_equal(raw, back)


def test_torch_tensors_are_coded_in_place() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    raw = torch.randn((TOKENS, DIM), generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    back = torch.zeros_like(raw)
    coded = codec.encode(raw, "default", element=Element.BF16, row=DIM)
    assert codec.decode(coded, into=back) == raw.nbytes
    assert torch.equal(raw, back)


def test_lossy_modes_ask_first_and_say_what_they_lost() -> None:
    coded = codec.encode(page(), CodecMode.INT8, **FORM)
    info = codec.inspect(coded)
    assert info.lossy and 0 < info.error_ppb < 10**8 and info.mode is CodecMode.INT8
    with pytest.raises(libkvbm.UnavailableError, match="lossy"):
        codec.decode(coded)
    assert len(codec.decode(coded, allow_lossy=True)) == page().nbytes


def test_a_changed_buffer_gives_the_right_bytes_or_none() -> None:
    raw = page().tobytes()
    coded = bytearray(codec.encode(raw, "default", **FORM))
    refused = 0
    for i in list(range(128)) + list(range(128, len(coded), 977)):
        coded[i] ^= 0x24
        try:
            assert codec.decode(coded) == raw
        except (libkvbm.MissError, libkvbm.UnavailableError):
            refused += 1
        coded[i] ^= 0x24
    assert refused > 50
    for n in (0, 1, 63, len(coded) - 1):
        with pytest.raises(libkvbm.MissError):
            codec.inspect(coded[:n])


def test_opaque_and_empty_buffers_are_coded_too() -> None:
    assert codec.decode(codec.encode(b"")) == b""
    assert codec.decode(codec.encode(b"a text that is no KV" * 99)) == b"a text that is no KV" * 99


@pytest.mark.parametrize("wrong", ["text", 5, None, [1, 2]], ids=str)
def test_what_is_no_buffer_is_a_type_error(wrong: Any) -> None:
    for use in (codec.encode, codec.decode, codec.inspect):
        with pytest.raises(TypeError):
            use(wrong)
    with pytest.raises(TypeError):
        codec.decode(codec.encode(b"ab"), into=wrong if wrong is not None else 5)


def test_buffers_that_do_not_fit_are_refused() -> None:
    raw = page()
    coded = codec.encode(raw, **FORM)
    for read_only in (bytes(raw.nbytes), memoryview(bytearray(raw.nbytes)).toreadonly()):
        with pytest.raises(BufferError):
            codec.decode(coded, into=read_only)
    with pytest.raises((BufferError, ValueError)):
        codec.encode(raw[:, ::2], **FORM)
    with pytest.raises(libkvbm.NoRoomError, match=str(raw.nbytes)):
        codec.decode(coded, into=bytearray(raw.nbytes - 1))
    with pytest.raises(libkvbm.NoRoomError):
        codec.encode(raw, into=bytearray(16), **FORM)
    both = bytearray(raw.nbytes + 4 * len(coded))
    with pytest.raises(libkvbm.CallerError, match="overlap"):
        codec.encode(memoryview(both)[:raw.nbytes], into=both)


def test_modes_and_forms_that_do_not_exist_are_the_callers_error() -> None:
    for mode in ("", "best", "default\0", 7):
        with pytest.raises(ValueError):
            codec.encode(b"ab", mode)  # type: ignore[call-overload]
    with pytest.raises(libkvbm.CallerError):
        codec.encode(b"ab", element=99)  # type: ignore[call-overload]
    with pytest.raises(OverflowError):
        codec.encode(b"ab", row=-1)


def test_a_namespace_says_whether_loss_is_allowed(context: libkvbm.Context, tmp_path: Path) -> None:
    tier = libkvbm.Tier(str(tmp_path), 1 << 26, codec="default")
    with libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20, tiers=[tier]) as manager:
        ns = libkvbm.Namespace(manager, "m", codec="int8", allow_lossy=True)
        with manager.allocate(ns, 1) as blocks:
            blocks.view(0)[:] = bytes(4096)
            blocks.complete()
            blocks.register(ns, libkvbm.Keys.chain(ns, [1], 1))
        manager.flush()
        stats = manager.stats()
        assert len(stats.codec) == len(stats.tiers) == 2 and stats.lossy_refused == 0
        assert stats.codec[1].coded + stats.codec[1].left_plain >= 1
        with pytest.raises(libkvbm.CallerError, match="no such mode"):
            libkvbm.Namespace(manager, "m", codec="nothing known")
    with pytest.raises(libkvbm.KvbmError):
        libkvbm.Manager(context, tiers=[libkvbm.Tier(str(tmp_path / "b"), 1 << 26, codec="nothing known")])
