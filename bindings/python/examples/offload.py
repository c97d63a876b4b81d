"""Stores two blocks of an engine's cache, overwrites the engine's memory, and loads them back."""
import libkvbm

kv = bytearray(4 * 4096)  # the engine's cache: four blocks of four tokens
tokens = [101, 7, 7, 9, 23, 5, 8, 2]  # the prompt
blocks = [3, 1]  # where the engine computed it

with libkvbm.Context() as context, libkvbm.Manager(context) as manager, \
        libkvbm.Namespace(manager, "my-model, bf16") as ns, \
        libkvbm.Cache(manager, ns, n_blocks=4, tensors=[kv]) as cache:
    kv[3 * 4096:] = b"a" * 4096
    kv[1 * 4096:2 * 4096] = b"b" * 4096
    keys = libkvbm.Keys.chain(ns, tokens, block_tokens=4)  # names for the prompt's two full blocks
    cache.store(keys, blocks)  # offload them
    kv[:] = bytes(len(kv))  # the engine forgets
    with cache.lookup(keys) as match:  # the same prompt comes again
        cache.load(match, blocks[:match.hits])  # back, verified
        print(f"{match.hits} of {len(keys)} blocks came back: {chr(kv[3 * 4096])}{chr(kv[2 * 4096 - 1])}")
