"""Stores and loads with asyncio: the event loop waits on the queue's descriptor."""
import asyncio

import libkvbm


async def main() -> None:
    kv = bytearray(64 * 4096)
    with libkvbm.Context() as context, libkvbm.Manager(context) as manager, \
            libkvbm.Namespace(manager, "my-model, bf16") as ns, \
            libkvbm.Cache(manager, ns, n_blocks=64, tensors=[kv]) as cache:
        requests = [libkvbm.Keys.chain(ns, range(i * 100, i * 100 + 64), block_tokens=16) for i in range(8)]
        stores = [cache.store_async(keys, range(4 * i, 4 * i + 4)) for i, keys in enumerate(requests)]
        done = await asyncio.gather(*stores)
        print(sum(completion.items_done for completion in done), "blocks stored")
        with cache.lookup(requests[0]) as match:
            await cache.load_async(match, range(60, 60 + match.hits))


asyncio.run(main())
