"""Caches in device memory, on the fake of the CUDA driver that the library's own tests use."""
from __future__ import annotations

import ctypes
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional, Union

import pytest
from fake_gpu import DRIVER, Fake, with_driver

import libkvbm
from libkvbm import Cache, Context, DeviceMemory, Keys, Manager, MemoryKind, Namespace, WaitLayers

PAGE, BLOCKS, LAYERS = 4096, 16, 2

@pytest.fixture
def context() -> Iterator[Context]:
    with Context({"device.library": str(DRIVER)}) as one:
        yield one


@pytest.fixture
def manager(context: Context) -> Iterator[Manager]:
    with Manager(context, block_bytes=LAYERS * PAGE, host_capacity_bytes=1 << 20) as one:
        yield one


def fill(memory: DeviceMemory, block: int, value: int) -> None:
    ctypes.memset(memory.address + block * PAGE, value, PAGE)


def page(memory: DeviceMemory, block: int) -> bytes:
    return ctypes.string_at(memory.address + block * PAGE, PAGE)


@with_driver
@pytest.mark.parametrize("how", [True, WaitLayers.ON_DEVICE, WaitLayers.ISSUED])
def test_what_is_stored_comes_back_layer_by_layer(context: Context, manager: Manager,
                                                  how: Union[bool, WaitLayers]) -> None:
    fake = Fake()
    tensors = [fake.memory(BLOCKS * PAGE) for _ in range(LAYERS)]
    with Namespace(manager, "m") as ns, Cache(manager, ns, BLOCKS, tensors=tensors, memory=MemoryKind.CUDA) as cache:
        keys = Keys.chain(ns, list(range(12)), 4)
        for layer, memory in enumerate(tensors):
            for block in range(3):
                fill(memory, block, 10 * layer + block + 1)
        stream = fake.stream()
        assert cache.store(keys, [0, 1, 2], stream=stream).status == 0
        match = cache.lookup(keys)
        queue = libkvbm.Queue(context, 4)
        load = cache.load_submit(match, [5, 6, 7], queue, stream=stream, wait_layers=how)
        for layer in range(LAYERS):
            cache.wait_layer(load, layer, stream)
        with pytest.raises(libkvbm.CallerError):
            cache.wait_layer(load, LAYERS, stream)
        fake.synchronize(stream)
        for layer, memory in enumerate(tensors):
            for block in range(3):
                assert page(memory, 5 + block) == bytes([10 * layer + block + 1]) * PAGE
        [completion] = queue.wait()
        assert completion.status == 0 and completion.items_done == 3
        queue.close()
        [device] = manager.devices()
        assert device.ordinal == 0 and device.state == "ready" and not device.lost and device.pinned_bytes
        assert device.scatters.leaves == 3 * LAYERS and device.gathers.bytes == 3 * LAYERS * PAGE


class Slow(libkvbm.Store):
    """A dict. Its blocks are read once the test allows it."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.may_read, self.read, self.closed = threading.Event(), threading.Event(), threading.Event()

    def put(self, name: str, data: memoryview) -> None:
        self.objects[name] = bytes(data)

    def get(self, name: str, offset: int, buffer: memoryview) -> Optional[int]:
        packed = name.startswith("v1/p/")
        assert not packed or self.may_read.wait(60)
        found = self.objects[name][offset:offset + len(buffer)]
        buffer[:len(found)] = found
        if packed:
            self.read.set()
        return len(found)

    def remove(self, name: str) -> None:
        self.objects.pop(name, None)

    def list(self, prefix: str, after: str) -> Any:
        return list(self.objects)

    def close(self) -> None:
        self.closed.set()


@contextmanager
def over(store: Slow, context: Context, tensors: list[DeviceMemory]) -> Iterator[tuple[Cache, Keys]]:
    """A cache in these tensors, with a key, in a manager of its own. The store is the only tier below the host."""
    tier = libkvbm.Tier(store=store, options={"poll": "20ms", "publish": "10ms", "linger": "1ms"})
    with Manager(context, block_bytes=LAYERS * PAGE, host_capacity_bytes=1 << 20, tiers=[tier]) as manager, \
            Namespace(manager, "m") as ns, \
            Cache(manager, ns, BLOCKS, tensors=tensors, memory=MemoryKind.CUDA) as cache:
        yield cache, Keys.chain(ns, [1, 2, 3, 4], 4)
    assert store.closed.wait(60)


@with_driver
@pytest.mark.parametrize("how", [WaitLayers.ON_DEVICE, WaitLayers.ISSUED])
def test_other_threads_run_while_a_layer_is_waited_for(context: Context, how: WaitLayers) -> None:
    """The layer comes from a store in Python, which needs the GIL to read it."""
    fake, first = Fake(), Slow({})
    stream, tensors = fake.stream(), [fake.memory(BLOCKS * PAGE) for _ in range(LAYERS)]
    with over(first, context, tensors) as (cache, keys):
        for layer, memory in enumerate(tensors):
            fill(memory, 0, layer + 1)
        assert cache.store(keys, [0], stream=stream).status == 0
        assert cache.manager.flush() == 0
    store = Slow(first.objects)
    with over(store, context, tensors) as (cache, keys), libkvbm.Queue(context, 4) as queue:
        end = time.monotonic() + 60
        while not (match := cache.lookup(keys)).hits:  # until the store was listed
            assert time.monotonic() < end
            time.sleep(0.005)
        with match:
            load = cache.load_submit(match, [5], queue, stream=stream, wait_layers=how, timeout_ns=20_000_000_000)
        if how == WaitLayers.ON_DEVICE:
            cache.wait_layer(load, 0, stream)
            assert not store.read.is_set()  # the call returned at once
        store.may_read.set()
        cache.wait_layer(load, LAYERS - 1, stream)
        assert how == WaitLayers.ON_DEVICE or store.read.is_set()
        fake.synchronize(stream)
        for layer, memory in enumerate(tensors):
            assert page(memory, 5) == bytes([layer + 1]) * PAGE
        [completion] = queue.wait()
        assert completion.status == 0


@with_driver
def test_blocks_are_coded_on_the_device_to_the_bytes_of_the_processor(manager: Manager) -> None:
    fake = Fake()
    on_device = [fake.memory(BLOCKS * PAGE) for _ in range(LAYERS)]
    on_host = [bytearray(BLOCKS * PAGE) for _ in range(LAYERS)]
    form: dict[str, Any] = {"element": libkvbm.Element.BF16, "row": 64}
    # bf16 between 0.5 and 1
    for layer, values in enumerate(on_host):
        for i in range(0, len(values), 2):
            values[i], values[i + 1] = (i * 7 + layer) % 128, 0x3F
        ctypes.memmove(on_device[layer].address, bytes(values), len(values))
    with Namespace(manager, "m") as ns, \
            Cache(manager, ns, BLOCKS, tensors=on_device, memory=MemoryKind.CUDA) as device, \
            Cache(manager, ns, BLOCKS, tensors=on_host) as host:
        for mode in ("default", "int8", "zstd", "off"):
            lossy = mode == "int8"
            coded = device.encode([3, 0, 7], mode, **form)
            about = libkvbm.codec.inspect(coded)
            assert about.lossy == lossy and about.raw_bytes == 3 * LAYERS * PAGE and (about.error_ppb > 0) == lossy
            room = bytearray(host.code_room(3, **form))
            assert host.encode([3, 0, 7], mode, into=room, **form) == len(coded)
            if not lossy:  # the last digits of what was lost may differ
                assert coded == room[:len(coded)]
            plain = libkvbm.codec.decode(coded, allow_lossy=True)
            if lossy:
                with pytest.raises(libkvbm.UnavailableError):
                    device.decode(coded, [9, 10, 11], **form)
            device.decode(coded, [9, 10, 11], allow_lossy=lossy, stream=fake.stream(), **form)
            for i in range(3):
                for layer, memory in enumerate(on_device):
                    at = (i * LAYERS + layer) * PAGE
                    assert page(memory, 9 + i) == plain[at:at + PAGE]
        with pytest.raises(libkvbm.CallerError, match="bytes of no known kind"):
            device.encode([0], "int8")
        with pytest.raises(libkvbm.CallerError, match="as block_ids"):
            device.decode(coded, [1, 2, 1], **form)


@with_driver
def test_memory_that_is_no_devices_is_refused(manager: Manager) -> None:
    with Namespace(manager, "m") as ns:
        with pytest.raises(libkvbm.CallerError, match="tensor 0 of part 0"):
            Cache(manager, ns, BLOCKS, tensors=[bytearray(BLOCKS * PAGE)], memory=MemoryKind.CUDA)
        with Cache(manager, ns, BLOCKS, tensors=[bytearray(BLOCKS * PAGE)]) as cache:
            with pytest.raises(libkvbm.CallerError):
                cache.store(Keys.chain(ns, [1, 2, 3, 4], 4), [0], stream=0)


def test_without_a_driver_a_cache_on_a_device_is_refused() -> None:
    settings = {"device.library": "/nowhere/libcuda.so.1", "device.cuda": "auto"}
    with Context(settings) as context, Manager(context, block_bytes=PAGE, host_capacity_bytes=1 << 20) as manager, \
            Namespace(manager, "m") as ns:
        with pytest.raises(libkvbm.UnavailableError, match="/nowhere/libcuda.so.1"):
            Cache(manager, ns, BLOCKS, tensors=[DeviceMemory(PAGE, BLOCKS * PAGE)], memory=MemoryKind.CUDA)
        assert manager.devices() == []


class DeviceTensor:
    """Imitates engines' tensors on a device: they support DLPack, and report their place."""

    def __init__(self, memory: DeviceMemory, whole: bool = True) -> None:
        self.nbytes, self.whole, self._address = memory.bytes, whole, memory.address

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def data_ptr(self) -> int:
        return self._address

    def is_contiguous(self) -> bool:
        return self.whole

    def __dlpack__(self) -> Any:
        raise AssertionError("the device would be asked to wait")


class ArrayOnDevice:
    """One with the CUDA array interface, as CuPy's."""

    def __init__(self, memory: DeviceMemory, whole: bool = True) -> None:
        self.nbytes = memory.bytes
        self.__cuda_array_interface__ = {"data": (memory.address, False), "strides": None if whole else (8,)}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self) -> Any:
        raise AssertionError("the device would be asked to wait")


@with_driver
@pytest.mark.parametrize("kind", [DeviceTensor, ArrayOnDevice])
def test_tensors_on_a_device_are_taken_as_they_are(manager: Manager, kind: Any) -> None:
    fake = Fake()
    memory = fake.memory(BLOCKS * PAGE)
    with Namespace(manager, "m") as ns:
        with pytest.raises(BufferError):
            Cache(manager, ns, BLOCKS, tensors=[kind(memory, whole=False)])
        with pytest.raises(libkvbm.UnavailableError, match="on device"):
            Cache(manager, ns, BLOCKS, tensors=[kind(memory)], memory=MemoryKind.HOST)
        with Cache(manager, ns, BLOCKS, tensors=[kind(memory)], memory=MemoryKind.CUDA) as cache:
            fill(memory, 3, 77)
            keys = Keys.chain(ns, [1, 2, 3, 4], 4)
            assert cache.store(keys, [3]).status == 0
            assert cache.load(cache.lookup(keys), [9]).status == 0
            assert page(memory, 9) == bytes([77]) * PAGE


class Side:
    """A node with a cache on the fake device: a tensor per layer."""

    HEADS, DIM, TOKENS = 2, 8, 16
    BLOCK = 2 * TOKENS * HEADS * DIM * 2

    def __init__(self, fake: Fake, settings: dict[str, str]) -> None:
        self.context = Context({"device.library": str(DRIVER), "node.pool": "device", **settings})
        self.manager = Manager(self.context, block_bytes=65536, host_capacity_bytes=8 << 20)
        geometry = libkvbm.Geometry(self.TOKENS, [
            libkvbm.Component(layers=LAYERS, heads=self.HEADS, head_dim=self.DIM)])
        self.ns = Namespace(self.manager, "m", geometry=geometry)
        self.tensors = [fake.memory(4 * self.BLOCK) for _ in range(LAYERS)]
        part = libkvbm.CachePart(self.tensors, libkvbm.Form.BLOCKS_NHD)
        self.cache = Cache(self.manager, self.ns, 4, [part], memory=MemoryKind.CUDA)

    def close(self) -> None:
        for item in (self.cache, self.ns, self.manager, self.context):
            item.close()


@with_driver
def test_a_request_moves_between_devices_behind_their_streams() -> None:
    fake = Fake()
    prefill = Side(fake, {"node.listen": "127.0.0.1:0"})
    address = prefill.manager.node_address()
    decode = Side(fake, {"node.peers": address})
    request = uuid.UUID(int=7)
    with libkvbm.Session(decode.cache, request, [3, 1], [libkvbm.Source(address)], stream=fake.stream()) as session, \
            libkvbm.Offer(prefill.cache, request, [0, 2]) as offer:
        computing = fake.stream()
        for layer, memory in enumerate(prefill.tensors):
            ctypes.memset(memory.address, layer + 1, memory.bytes)
            offer.publish_on_stream(computing, 0, layer, 1)
            assert session.wait_layer(layer, timeout_ns=60_000_000_000)
            arrived = ctypes.string_at(decode.tensors[layer].address + 3 * Side.BLOCK, Side.BLOCK)
            assert arrived == bytes([layer + 1]) * Side.BLOCK
        assert session.wait() and offer.wait()
    decode.close()
    prefill.close()
