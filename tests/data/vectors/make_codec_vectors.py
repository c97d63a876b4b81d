#!/usr/bin/env python3
"""Coded streams for every language: what is decoded, and what must come out.

  make_codec_vectors.py LIBKVBM_SO [--check]

Writes codec.json beside this file: coded streams of a piece of ../kv in every mode (hex), the SHA-256 of what decoding
gives, and streams that must be refused. Decoders are not compared with an encoder: zstd may write other bytes in
another version, and all of them stay readable. Streams of mode "off" are also made here, from lib/codec/README.md
alone, and compared. --check: decode what is in codec.json with that library and write nothing.
"""
import ctypes
import hashlib
import json
import pathlib
import struct
import sys

from make_vectors import leaf_hash

here = pathlib.Path(__file__).resolve().parent
ELEMENTS = {"bytes": 0, "bf16": 1, "fp16": 2, "fp32": 3, "fp8_e4m3": 4, "fp8_e5m2": 5, "int8": 6}


class Options(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint32) for n in ("struct_size", "element", "row_elements", "rows")]


def library(path):
    lib = ctypes.CDLL(path)
    lib.kvbm_codec_mode_name.restype = ctypes.c_char_p
    return lib


def encode(lib, raw, mode, element, row, rows):
    options = Options(ctypes.sizeof(Options), ELEMENTS[element], row, rows)
    room = ctypes.c_uint64()
    assert lib.kvbm_codec_room(ctypes.c_uint64(len(raw)), ctypes.byref(options), ctypes.byref(room), None) == 0
    out = ctypes.create_string_buffer(room.value)
    n = ctypes.c_size_t()
    assert lib.kvbm_codec_encode(raw, ctypes.c_size_t(len(raw)), ctypes.c_uint32(mode), ctypes.byref(options), out,
                                 ctypes.c_size_t(room.value), ctypes.byref(n), None) == 0
    return out.raw[:n.value]


def decode(lib, coded, flags, size):
    out = ctypes.create_string_buffer(max(size, 1))
    n = ctypes.c_size_t()
    status = lib.kvbm_codec_decode(coded, ctypes.c_size_t(len(coded)), ctypes.c_uint32(flags), out, ctypes.c_size_t(size),
                                   ctypes.byref(n), None)
    return status, out.raw[:n.value]


def plain_stream(raw, element, row, rows):
    """Mode off, from the specification: one leaf of at most 64 KiB."""
    assert len(raw) <= 65536
    leaves = 1 if raw else 0
    table = struct.pack("<IIHHIQ", len(raw), len(raw), 0, 0, 0, leaf_hash(raw)) if raw else b""
    head_bytes = (56 + len(table) + 8 + 63) // 64 * 64
    body = raw.ljust((len(raw) + 63) // 64 * 64, b"\0")
    head = struct.pack("<IBBBBQQIIIIdd", 0x5342564B, 1, ELEMENTS[element], 0, 0, len(raw), head_bytes + len(body), leaves, row,
                       rows, 0, 0.0, 0.0) + table
    return (head + struct.pack("<Q", leaf_hash(head))).ljust(head_bytes, b"\0") + body


def check(lib, vectors):
    for v in vectors["streams"]:
        coded = bytes.fromhex(v["coded"])
        status, out = decode(lib, coded, 1 if v["lossy"] else 0, v["raw_bytes"])
        assert status == 0 and hashlib.sha256(out).hexdigest() == v["decoded_sha256"], v["name"]
        if v["lossy"]:
            assert decode(lib, coded, 0, v["raw_bytes"])[0] == -502, v["name"]
    for v in vectors["refused"]:
        assert decode(lib, bytes.fromhex(v["coded"]), 0, 1 << 16)[0] == v["status"], v["name"]
    print(f"{len(vectors['streams'])} streams decoded, {len(vectors['refused'])} refused")


def kept_signs(element, count, row, flips_in=16):
    """Values like those of K: a channel keeps its sign from row to row, but now and then; exponents lie near each other."""
    width, exponent_at, near = {"bf16": (2, 7, 120), "fp16": (2, 10, 12), "fp8_e4m3": (1, 3, 6), "fp8_e5m2": (1, 2, 14)}[element]
    top = width * 8 - 1
    state, values = 1, []
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        bits = state >> 24
        sign = values[i - row] >> top if i >= row else 0
        if bits % flips_in == 0:
            sign ^= 1
        exponent = near + (0 if bits >> 4 & 1 else 1 if bits >> 5 & 1 else 2)
        values.append(sign << top | exponent << exponent_at | (bits >> 8) % (1 << exponent_at))
    return b"".join(v.to_bytes(width, "little") for v in values)


def make(lib):
    kv = (here.parent / "kv" / "smollm2_bf16.bin").read_bytes()
    lossless = ("off", "default", "fast", "max", "zstd")
    inputs = [("bf16_heads", kv[4096:8192], "bf16", 64, 16, None), ("bf16_odd", kv[:1001], "bf16", 64, 0, lossless),
              ("bytes", kv[:777], "bytes", 0, 0, lossless), ("empty", b"", "bytes", 0, 0, lossless),
              ("fp8", kv[1:4096:2], "fp8_e4m3", 64, 16, lossless), ("int8", kv[1:1024:2], "int8", 64, 8, lossless),
              ("fp32", b"".join(b"\0" + kv[i:i + 1] + kv[i:i + 2] for i in range(0, 1024, 2)), "fp32", 64, 8, lossless),
              ("same_rows", kv[:128] * 16, "bf16", 64, 16, ("default",)), ("bf16_tokens", kv[:6144], "bf16", 64, 48, ("delta",))]
    inputs += [(f"{element}_signs", kept_signs(element, 1024, 64), element, 64, 16, ("default", "max"))
               for element in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2")]
    inputs.append(("fp16", kept_signs("fp16", 1024, 64, 2), "fp16", 64, 16, ("fast", "default")))
    streams = []
    for name, raw, element, row, rows, modes in inputs:
        for mode in range(32):
            mode_name = lib.kvbm_codec_mode_name(mode)
            if mode_name is None or (modes is not None and mode_name.decode() not in modes):
                continue
            coded = encode(lib, raw, mode, element, row, rows)
            if mode == 0:
                assert coded == plain_stream(raw, element, row, rows), name
            lossy = coded[7] & 1 == 1
            status, out = decode(lib, coded, 1, len(raw))
            assert status == 0 and (lossy or out == raw)
            streams.append({"name": f"{name}.{mode_name.decode()}", "mode": mode_name.decode(), "element": element, "row": row,
                            "rows": rows, "lossy": lossy, "raw_bytes": len(raw), "raw_sha256": hashlib.sha256(raw).hexdigest(),
                            "decoded_sha256": hashlib.sha256(out).hexdigest(), "coded": coded.hex()})
    good = encode(lib, kv[:512], 0, "bf16", 64, 0)
    changed = bytearray(good)
    changed[200] ^= 1
    newer = bytearray(good)
    newer[4] = 2
    refused = [("a changed value", bytes(changed), -401), ("cut short", good[:-64], -401), ("longer", good + bytes(64), -401),
               ("not a stream", kv[:256], -401), ("nothing", b"", -401), ("a newer version", bytes(newer), -501)]
    return {"about": "made by make_codec_vectors.py; coded is hex, status a kvbm_status_t", "streams": streams,
            "refused": [{"name": n, "coded": c.hex(), "status": s} for n, c, s in refused]}


lib = library(sys.argv[1])
path = here / "codec.json"
if "--check" in sys.argv:
    check(lib, json.loads(path.read_text()))
else:
    vectors = make(lib)
    check(lib, vectors)
    path.write_text(json.dumps(vectors, indent=1) + "\n")
