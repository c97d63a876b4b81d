#!/usr/bin/env python3
"""An independent reference of keys, namespace ids, the leaf hash, record heads and sealing (lib/codec/README.md), and its
vectors.

Run it in this folder to write keys.json, leaf_hash.json, record.json and sealed.json again. Nothing but the standard library is
needed. It also checks that ../golden/record-v1-content.bin, which the library wrote, is what it would have written.
"""
import hashlib
import hmac
import json
import struct

from aes_gcm import gcm_seal, hkdf_expand, hkdf_extract
from xxh3 import xxh3_64, xxh3_128

M64 = (1 << 64) - 1


def splitmix(n):
    z = ((n + 1) * 0x9E3779B97F4A7C15) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


START, KEY, SCRAMBLE, MERGE = ([splitmix(32 * t + lane) for lane in range(32)] for t in range(4))


def leaf_hash(data):
    acc = list(START)
    rows = (len(data) + 255) // 256
    padded = data.ljust(rows * 256, b"\0")
    for r in range(rows):
        words = struct.unpack_from("<32Q", padded, r * 256)
        step = (r * 0xD1342543DE82EF95) & M64
        for lane, w in enumerate(words):
            x = w ^ ((KEY[lane] + step) & M64)
            acc[lane] = (acc[lane] + (x & 0xFFFFFFFF) * (x >> 32)) & M64
            acc[lane ^ 1] = (acc[lane ^ 1] + w) & M64
        if (r + 1) % 16 == 0:
            acc = [((a ^ (a >> 47) ^ s) * 0x9E3779B1) & M64 for a, s in zip(acc, SCRAMBLE)]
    h = (len(data) * 0x9E3779B185EBCA87) & M64
    for i in range(0, 32, 2):
        product = (acc[i] ^ MERGE[i]) * (acc[i + 1] ^ MERGE[i + 1])
        h = (h + ((product & M64) ^ (product >> 64))) & M64
    h ^= h >> 37
    h = (h * 0x165667919E3779F9) & M64
    return h ^ (h >> 32)


def text(s):
    raw = s.encode()
    return struct.pack("<I", len(raw)) + raw


def namespace_id(secret, tenant, model, adapter, geometry, epoch):
    message = b"N\x01\0\0" + text(tenant) + text(model) + text(adapter) + struct.pack("<QQ", geometry, epoch)
    return hmac.new(secret, message, hashlib.sha256).digest()[:16]


def key(tag, ns, previous, tokens, extra):
    body = tag + b"\x01\0\0" + ns + previous + struct.pack("<II", len(tokens), len(extra))
    return hashlib.sha256(body + struct.pack(f"<{len(tokens)}I", *tokens) + extra).digest()[:16]


def chain(ns, previous, tokens, block, extras):
    out = []
    for i in range(len(tokens) // block):
        previous = key(b"C", ns, previous, tokens[i * block : (i + 1) * block], extras[i] if extras else b"")
        out.append(previous)
    return out


def pattern(n, seed):
    return bytes((i * 131 + (i >> 8) * 7 + seed) & 0xFF for i in range(n))


def make_keys():
    zero = bytes(16)
    cases = []
    for secret, tenant, model, adapter, geometry, epoch in [
        (bytes(32), "", "m", "", 0, 0),
        (bytes(range(32)), "tenant-a", "llama-3.1-8b, bf16", "lora-7", 0x1122334455667788, 3),
    ]:
        ns = namespace_id(secret, tenant, model, adapter, geometry, epoch)
        tokens = [(i * 2654435761) & 0xFFFFFFFF for i in range(50)]
        extras = [b"", b"\x01", bytes(range(40))]
        cases.append(
            {
                "secret": secret.hex(), "tenant": tenant, "model": model, "adapter": adapter,
                "geometry": geometry, "epoch": epoch, "namespace": ns.hex(), "tokens": tokens,
                "chained16": [k.hex() for k in chain(ns, zero, tokens, 16, None)],
                "chained16_extras": [k.hex() for k in chain(ns, zero, tokens, 16, extras)],
                "chained16_after_first": [k.hex() for k in chain(ns, chain(ns, zero, tokens, 16, None)[0], tokens[16:], 16, None)],
                "content16": [key(b"P", ns, zero, tokens[i * 16 : i * 16 + 16], b"").hex() for i in range(3)],
                "extras": [e.hex() for e in extras],
                "engine": {h.hex(): key(b"E", ns, zero, [], h).hex() for h in (b"\x05", bytes(range(36)), bytes(64))},
            }
        )
    return cases


def make_leaf_hash():
    sizes = [0, 1, 7, 8, 63, 64, 65, 255, 256, 257, 511, 4095, 4096, 4097, 8192, 65535, 65536]
    return [{"bytes": n, "seed": n % 251, "hash": f"{leaf_hash(pattern(n, n % 251)):016x}"} for n in sizes]


def seal(head):
    """Writes root hash and checksum into a head that has zeros in bytes 136 to 159."""
    low, high = xxh3_128(head)
    head = head[:136] + struct.pack("<QQ", low, high) + head[152:]
    return head[:152] + struct.pack("<Q", xxh3_64(head[:152])) + head[160:]


def record_head(h):
    """A head out of its fields; ids are hex, leaves [raw bytes, hash], attributes [tag, hex]."""
    attributes = b"".join(struct.pack("<HH", tag, len(v) // 2) + bytes.fromhex(v) for tag, v in h["attributes"])
    sizes = [size for size, _ in h["leaves"]]
    head = struct.pack("<IBBHHH5HHII", 0x5242564B, 1, 0, 160, h["flags"], h["component"], *h["shard"], 0, len(sizes),
                       len(attributes))
    head += b"".join(bytes.fromhex(h[name]) for name in ("namespace", "key", "parent", "record_id"))
    head += struct.pack("<QQQIIQ", h["geometry"], sum(sizes), sum(sizes), h["tokens"], h["key_id"], 0) + bytes(24)
    assert len(head) == 160
    at = 0
    for size, leaf in h["leaves"]:
        head += struct.pack("<IIIHHQ", at, size, size, 0, 0, int(leaf, 16))
        at += size
    return seal(head + attributes)


def make_records():
    def ident(seed):
        return pattern(16, seed).hex()

    def leaves(sizes):
        return [[n, f"{leaf_hash(pattern(n, i)):016x}"] for i, n in enumerate(sizes)]

    common = {"namespace": ident(11), "key": ident(22), "parent": bytes(16).hex(), "record_id": ident(44)}
    cases = [
        # The root hash takes the short way of XXH3 up to 240 bytes of head, and the library hashes a copy up to 1,024.
        {"what": "nothing but a header", "flags": 0, "component": 0, "shard": [0, 0, 0, 0, 0], "geometry": 0, "tokens": 0,
         "key_id": 0, "leaves": [], "attributes": []},
        {"what": "an opaque block", "flags": 1, "component": 7, "shard": [0, 32, 0, 8, 0], "geometry": 0, "tokens": 16,
         "key_id": 0, "leaves": leaves([65536, 65536, 1]), "attributes": []},
        {"what": "content key and attributes", "flags": 0xA, "component": 1, "shard": [4, 4, 2, 2, 1],
         "geometry": 0x1122334455667788, "tokens": 64, "key_id": 0, "parent": ident(33), "leaves": leaves([4096, 4096]),
         "attributes": [[1, ident(5)], [2, pattern(24, 6).hex()], [3, ""], [4, pattern(256, 7).hex()], [999, "ff"]]},
        {"what": "many leaves", "flags": 2, "component": 0xFFFF, "shard": [0xFFFF] * 5, "geometry": M64,
         "tokens": 0xFFFFFFFF, "key_id": 0xFFFFFFFF, "parent": ident(33), "leaves": leaves(range(1, 91)),
         "attributes": [[2, pattern(24, 8).hex()]]},
    ]
    cases = [{**common, **case} for case in cases]
    return [{**case, "head": record_head(case).hex()} for case in cases]


def make_sealed():
    """Sealed records, made by this script. Leaves are raw: coded ones are sealed by the same rule once they are bytes."""
    cases = []
    for key_id, master, sizes, attributes in [
        (7, bytes(range(32)), [100, 64, 1], [[2, pattern(24, 8).hex()], [3, pattern(40, 9).hex()]]),
        (0xFFFFFFFF, pattern(32, 1), [300], []),
        (1, pattern(32, 2), [], []),
    ]:
        ids = {name: pattern(16, seed).hex() for name, seed in
               (("namespace", 11), ("key", 22), ("parent", 33), ("record_id", 55 + key_id % 7))}
        plain = [pattern(n, i + 3) for i, n in enumerate(sizes)]
        fields = {"flags": 8, "component": 3, "shard": [1, 2, 3, 4, 0], "geometry": 0x1122334455667788, "tokens": 64}
        clear = {**ids, **fields, "record_id": pattern(16, 44).hex(), "key_id": 0, "attributes": attributes,
                 "leaves": [[len(p), f"{leaf_hash(p):016x}"] for p in plain]}
        secret = hkdf_extract(b"kvbm seal 1", master)
        for what, ident in ((b"namespace", ids["namespace"]), (b"record", ids["record_id"])):
            secret = hkdf_expand(secret, what + bytes.fromhex(ident))

        inside = b"".join(struct.pack("<HH", tag, len(v) // 2) + bytes.fromhex(v) for tag, v in attributes)
        head = struct.pack("<IBBHHH5HHII", 0x5242564B, 1, 0, 160, 8 | 4, 3, 1, 2, 3, 4, 0, 0, len(sizes), len(inside) + 20)
        head += b"".join(bytes.fromhex(ids[name]) for name in ("namespace", "key", "parent", "record_id"))
        head += struct.pack("<QQ", fields["geometry"], sum(sizes))
        behind = struct.pack("<II", fields["tokens"], key_id)
        payload, table, raw_at = b"", b"", 0
        for i, p in enumerate(plain):
            about = head + bytes(8) + behind + struct.pack("<IIIHH", i, len(p), raw_at, 0, 0)
            assert len(about) == 144
            stored = gcm_seal(secret, struct.pack("<IQ", 1, i), about, p + struct.pack("<Q", leaf_hash(p)))
            table += struct.pack("<IIIHHQ", len(payload), len(stored), len(p), 0, 0, leaf_hash(stored))
            payload += stored
            raw_at += len(p)
        head += struct.pack("<Q", len(payload)) + behind + bytes(8)
        tail = struct.pack("<HH", 6, len(inside) + 16) + gcm_seal(secret, struct.pack("<IQ", 2, 0), head + table, inside)
        cases.append({"ring": f"{key_id} {master.hex()}", "record_id": ids["record_id"], "record_key": secret.hex(),
                      "plain_head": record_head(clear).hex(), "plain_payload": b"".join(plain).hex(),
                      "head": seal(head + bytes(24) + table + tail).hex(), "payload": payload.hex()})
    return cases


def check_golden(name):
    with open(f"../golden/{name}", "rb") as file:
        head = file.read()
    assert seal(head[:136] + bytes(24) + head[160:]) == head, name


if __name__ == "__main__":
    check_golden("record-v1-content.bin")
    for name, cases in (("keys", make_keys()), ("leaf_hash", make_leaf_hash()), ("record", make_records()),
                        ("sealed", make_sealed())):
        with open(f"{name}.json", "w", encoding="utf-8") as out:
            json.dump(cases, out, indent=1)
            out.write("\n")
