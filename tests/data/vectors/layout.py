"""Writes layout.json beside itself: fingerprints and leaf tables as lib/layout/README.md says them,
by plain enumeration, independent of the library."""
import json, os, struct

M = (1 << 64) - 1
SIZE = [1, 2, 2, 4, 1, 1, 1]
FIELDS = ["kind", "element", "layers", "planes", "heads", "head_dim", "window_tokens"]


def fingerprint(tokens, units, components):
    data = b"kvbm geometry 1\0" + struct.pack("<III", tokens, units, len(components))
    for c in components:
        data += struct.pack("<7IQ", *[c[f] for f in FIELDS], c["state_bytes"])
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & M
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & M
    h = (h ^ h >> 27) * 0x94D049BB133111EB & M
    return (h ^ h >> 31) or 1


def leaves(tokens, units, c, shard):
    """[index, offset, bytes, layer, plane, unit, first head, heads, first token, tokens]"""
    row = c["head_dim"] * SIZE[c["element"]]
    if c["kind"] == 4:
        tokens, row = c["state_bytes"], 1
    out, offset = [], 0
    for layer in range(shard[1]):
        for plane in range(c["planes"]):
            for unit in range(units):
                if tokens * row <= 65536:
                    step = 65536 // (tokens * row)
                    parts = [(h, min(step, shard[3] - h), 0, tokens) for h in range(0, shard[3], step)]
                else:
                    step = 65536 // row
                    parts = [(h, 1, t, min(step, tokens - t)) for h in range(shard[3]) for t in range(0, tokens, step)]
                for h, n, t, m in parts:
                    out.append([len(out), offset, n * m * row, layer, plane, unit, h, n, t, m])
                    offset += out[-1][2]
    return out, offset


def comp(kind, element, layers, planes, heads, dim, window=0, state=0):
    return dict(kind=kind, element=element, layers=layers, planes=planes, heads=heads, head_dim=dim,
                window_tokens=window, state_bytes=state)


CASES = [
    ("llama-3.3-70b, 16 units", 16, 16, [comp(1, 1, 80, 2, 8, 128)], [0, 80, 0, 8]),
    ("qwen3-8b rank 1 of 4", 16, 1, [comp(1, 1, 36, 2, 8, 128)], [0, 36, 2, 2]),
    ("heads in groups", 64, 2, [comp(1, 2, 3, 2, 10, 128)], [1, 2, 0, 10]),
    ("heads that are cut", 300, 2, [comp(1, 3, 2, 2, 3, 100)], [0, 2, 1, 2]),
    ("mla latent", 64, 1, [comp(3, 1, 61, 1, 1, 576)], [0, 61, 0, 1]),
    ("state", 128, 1, [comp(4, 0, 4, 1, 1, 0, 0, 150001)], [0, 4, 0, 1]),
    ("hybrid", 16, 4, [comp(2, 4, 24, 2, 4, 256, 4096), comp(1, 4, 8, 2, 4, 256), comp(4, 0, 16, 1, 1, 0, 0, 4096)],
     [0, 24, 0, 4]),
]

result = []
for name, tokens, units, components, shard in CASES:
    table, total = leaves(tokens, units, components[0], shard)
    step = max(1, len(table) // 20)
    result.append(dict(name=name, tokens_per_block=tokens, units=units, components=components, shard=shard,
                       fingerprint="%016x" % fingerprint(tokens, units, components), leaf_count=len(table),
                       payload_bytes=total, leaves=table[::step] + table[-1:]))
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "layout.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in result) + "\n]\n")
