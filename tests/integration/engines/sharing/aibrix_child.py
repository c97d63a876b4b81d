"""AIBrix's own manager in a process of its own: gets the blocks of a prompt, writes them to files, or puts them."""
from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aibrix_kvcache
    import torch
    from aibrix_kvcache import cache_manager
    from aibrix_kvcache.spec import KVCacheBlockLayout, KVCacheBlockSpec, KVCacheTensorSpec, ModelSpec

import libkvbm.aibrix

cache_manager.TESTING_DISABLE_PIN_MEMORY = True  # AIBrix's own switch for machines without a GPU


def main() -> None:
    job = json.loads(sys.argv[1])
    libkvbm.aibrix.install()
    spec = KVCacheBlockSpec(job["block"], torch.bfloat16, KVCacheBlockLayout.LCND,
                            KVCacheTensorSpec([*range(job["heads"])], [*range(job["layers"])], job["dim"]))
    manager = aibrix_kvcache.BaseKVCacheManager(
        aibrix_kvcache.KVCacheConfig(spec, ModelSpec(4096, 1024), multi_threaded=True))
    tokens, place = aibrix_kvcache.TokenListView(job["tokens"]), Path(job["place"])
    result: dict[str, object] = {"blocks": 0, "digests": []}
    if job["do"] == "put":
        handle = manager.allocate_for(None, tokens).get()
        for i, tensor in enumerate(handle.to_tensors()):
            data = bytearray((place / str(i)).read_bytes())
            tensor.view(torch.uint8).flatten().copy_(torch.frombuffer(data, dtype=torch.uint8))
        put = manager.put(None, tokens, handle)
        manager._l2_cache._backend.manager.flush(60_000_000_000)
        result["blocks"] = put.get() // job["block"]
    else:
        status = manager.acquire(None, tokens)
        if status.is_ok():
            n, handle = status.get()
            blocks = [tensor.view(torch.uint8).flatten().numpy().tobytes() for tensor in handle.to_tensors()]
            handle.release()
            result = {"blocks": n // job["block"], "digests": [hashlib.sha256(data).hexdigest() for data in blocks]}
            if job["do"] == "dump":
                place.mkdir()
                for i, data in enumerate(blocks):
                    (place / str(i)).write_bytes(data)
    manager.close()
    print(json.dumps(result), flush=True)


main()
