"""A store of one's own: a directory. What one manager puts there another finds; any process with this class would."""
import os
import tempfile
import time
from typing import Iterator, Optional

import libkvbm


class Directory(libkvbm.Store):
    """Objects as files. They may come and go at any time: whatever is not whole or not there is a miss to libkvbm."""

    concurrency = 4  # methods are called on so many threads at a time

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def put(self, name: str, data: memoryview) -> None:
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
            file.write(data)
        os.replace(file.name, path)  # seen whole or not at all

    def get(self, name: str, offset: int, buffer: memoryview) -> Optional[int]:
        with open(os.path.join(self.folder, name), "rb", buffering=0) as file:  # FileNotFoundError is a miss
            file.seek(offset)
            return file.readinto(buffer)

    def remove(self, name: str) -> None:
        os.unlink(os.path.join(self.folder, name))

    def list(self, prefix: str, after: str) -> Iterator[str]:
        top = os.path.join(self.folder, os.path.dirname(prefix))
        for folder, _, files in os.walk(top):
            for file in files:
                if not file.startswith("tmp"):
                    yield os.path.relpath(os.path.join(folder, file), self.folder)


def work(folder: str, store: bool) -> bool:
    """Stores eight blocks, or loads them if they are found."""
    tier = libkvbm.Tier(store=Directory(folder), options={"poll": "100ms", "publish": "50ms"})
    with libkvbm.Context() as context, \
            libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20, tiers=[tier]) as manager, \
            libkvbm.Namespace(manager, "a model") as ns:
        keys = libkvbm.Keys.chain(ns, range(8 * 16), 16)
        kv = bytearray(b"".join(bytes([65 + i]) * 4096 for i in range(8)) if store else bytes(8 * 4096))
        with libkvbm.Cache(manager, ns, 8, tensors=[kv]) as cache:
            if store:
                cache.store(keys, range(8))
                manager.flush()
                return True
            end = time.monotonic() + 30
            while time.monotonic() < end:  # the store's contents are learned from its listing
                with cache.lookup(keys) as match:
                    if match.hits == 8:
                        return cache.load(match, range(8)).status == 0 and kv[::4096] == b"ABCDEFGH"
                time.sleep(0.01)
    return False


with tempfile.TemporaryDirectory() as folder:
    assert work(folder, store=True)
    assert work(folder, store=False)
    print("8 blocks through", len([1 for _, _, files in os.walk(folder) for _ in files]), "files")
