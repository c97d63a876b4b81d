"""LMCache's objects for tests: keys, memory objects and an arena that they lie in."""
from __future__ import annotations

import ctypes
import mmap
import os
import random
import select
from typing import Any, Optional

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

KV_RANK = ObjectKey.ComputeKVRank(1, 0, 1, 0)


def key(number: int, *, model: str = "a/model", rank: int = KV_RANK, salt: str = "", group: int = 0) -> ObjectKey:
    return ObjectKey(chunk_hash=number.to_bytes(32, "big"), model_name=model, kv_rank=rank, object_group_id=group,
                     cache_salt=salt)


def layout(size: int, dtype: torch.dtype = torch.uint8, group: int = 0) -> dict[int, MemoryLayoutDesc]:
    return {group: MemoryLayoutDesc([torch.Size([size // dtype.itemsize])], [dtype])}


def of(tensor: torch.Tensor, dtype: torch.dtype = torch.uint8) -> TensorMemoryObj:
    """A memory object over bytes of a tensor."""
    shape = torch.Size([tensor.numel() // dtype.itemsize])
    meta = MemoryObjMetadata(shape=shape, dtype=dtype, address=0, phy_size=tensor.numel(), ref_count=1,
                             fmt=MemoryFormat.KV_2LTD, shapes=[shape], dtypes=[dtype])
    return TensorMemoryObj(raw_data=tensor, metadata=meta, parent_allocator=None)


def filled(size: int, seed: int, dtype: torch.dtype = torch.uint8) -> TensorMemoryObj:
    data = bytearray(random.Random(seed).randbytes(size))
    return of(torch.frombuffer(data, dtype=torch.uint8), dtype)


def empty(size: int, dtype: torch.dtype = torch.uint8) -> TensorMemoryObj:
    return of(torch.zeros(size, dtype=torch.uint8), dtype)


def content(obj: TensorMemoryObj) -> bytes:
    return bytes(obj.byte_array)


class Arena:
    """LMCache's L1 memory: objects at chosen offsets of one mapping."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, size)
        self._view = (ctypes.c_ubyte * size).from_buffer(self.map)
        self.tensor = torch.frombuffer(self.map, dtype=torch.uint8)
        self.desc = L1MemoryDesc(ptr=ctypes.addressof(self._view), size=size, align_bytes=4096)

    def at(self, offset: int, size: int) -> TensorMemoryObj:
        return of(self.tensor[offset:offset + size])

    def filled(self, offset: int, size: int, seed: int) -> TensorMemoryObj:
        self.map[offset:offset + size] = random.Random(seed).randbytes(size)
        return self.at(offset, size)


class Caller:
    """An L2 adapter as LMCache's controllers use it: submit, wait for the descriptor, take the result."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    def store(self, keys: list[ObjectKey], objects: list[Any]) -> Any:
        task = self.adapter.submit_store_task(keys, objects)
        return self._until(self.adapter.get_store_event_fd(),
                           lambda: self.adapter.pop_completed_store_tasks().get(task))

    def lookup(self, keys: list[ObjectKey], layouts: dict[int, MemoryLayoutDesc]) -> list[bool]:
        task = self.adapter.submit_lookup_and_lock_task(keys, layouts)
        bitmap = self._until(self.adapter.get_lookup_and_lock_event_fd(),
                             lambda: self.adapter.query_lookup_and_lock_result(task))
        return [bitmap.test(i) for i in range(len(keys))]

    def load(self, keys: list[ObjectKey], objects: list[Any]) -> list[bool]:
        task = self.adapter.submit_load_task(keys, objects)
        bitmap = self._until(self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(task))
        return [bitmap.test(i) for i in range(len(keys))]

    def hits(self, keys: list[ObjectKey], layouts: dict[int, MemoryLayoutDesc]) -> list[bool]:
        """A lookup that releases its locks."""
        found = self.lookup(keys, layouts)
        self.adapter.submit_unlock([k for k, hit in zip(keys, found) if hit])
        return found

    @staticmethod
    def _until(fd: int, ask: Any) -> Any:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        while True:
            assert poller.poll(30_000), "no completion within 30 s"
            os.eventfd_read(fd)
            result = ask()
            if result is not None:
                return result


def drained(client: Any, number: int) -> tuple[bool, str, Optional[list[bool]]]:
    """The completion of a native client's submission."""
    poller = select.poll()
    poller.register(client.event_fd(), select.POLLIN)
    while True:
        assert poller.poll(30_000), "no completion within 30 s"
        for row in client.drain_completions():
            if row[0] == number:
                return row[1], row[2], row[3]
