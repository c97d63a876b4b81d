"""Stores blocks of a known content, or fetches them and compares every byte.

    relay.py store|fetch [--tier DIR] --seed S --blocks N [KEY=VALUE...]
"""
import argparse
import sys
import time

import libkvbm

BLOCK_BYTES = 65536
BLOCK_TOKENS = 16


def content(seed: int, block: int) -> bytes:
    start = seed + 31 * block
    return bytes((start + 7 * j + (j >> 8)) & 255 for j in range(BLOCK_BYTES))


def prompt(seed: int, blocks: int) -> list[int]:
    return [(seed * 1000003 + i * BLOCK_TOKENS + t) & 0xFFFFFFFF for i in range(blocks) for t in range(BLOCK_TOKENS)]


def store(manager: libkvbm.Manager, ns: libkvbm.Namespace, keys: libkvbm.Keys, seed: int) -> int:
    with manager.allocate(ns, len(keys)) as blocks:
        for i, view in enumerate(blocks.views()):
            view[:] = content(seed, i)
        del view
        blocks.complete()
        blocks.register(ns, keys)
        manager.flush(30_000_000_000)
        print(f"stored {len(keys)}")
        address = manager.node_address()
        if address:
            print(f"node {address}")
        print("ready", flush=True)
        sys.stdin.read()
    return 0


def fetch(manager: libkvbm.Manager, ns: libkvbm.Namespace, keys: libkvbm.Keys, seed: int) -> int:
    end = time.monotonic() + 10
    while True:
        with manager.lookup(ns, keys, ask_nodes_ns=2_000_000_000) as match:
            if match.hits == len(keys) or time.monotonic() > end:
                break
        time.sleep(0.05)
    manager.prefetch(ns, keys)
    right = 0
    with manager.lookup(ns, keys) as match, match.blocks() as blocks:
        for i, present in enumerate(blocks.present):
            if present:
                with blocks.view(i) as view:
                    right += view == content(seed, i)
    print(f"verified {right} of {len(keys)}", flush=True)
    return 0 if right == len(keys) else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["store", "fetch"])
    parser.add_argument("--tier")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--blocks", type=int, required=True)
    parser.add_argument("settings", nargs="*")
    given = parser.parse_intermixed_args()
    settings = dict(setting.split("=", 1) for setting in given.settings)
    tiers = [libkvbm.Tier(given.tier, 256 << 20)] if given.tier else None
    try:
        with libkvbm.Context(settings) as context, \
                libkvbm.Manager(context, block_bytes=BLOCK_BYTES, tiers=tiers) as manager, \
                libkvbm.Namespace(manager, "relay-model", tenant="relay", secret=bytes([7]) * 32) as ns:
            keys = libkvbm.Keys.chain(ns, prompt(given.seed, given.blocks), BLOCK_TOKENS)
            return (store if given.verb == "store" else fetch)(manager, ns, keys, given.seed)
    except libkvbm.KvbmError as error:
        print(error, file=sys.stderr)
        return 1


sys.exit(main())
