"""A GPU for tests: the fake of the CUDA driver that the library's own tests use, seen as an engine sees a device."""
from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from libkvbm import DeviceMemory

ROOT = pathlib.Path(__file__).resolve().parents[3]
DRIVER = pathlib.Path(os.environ.get("KVBMTEST_CUDA_DRIVER", ROOT / "build/release/tests/libtest_cuda_driver.so"))

with_driver = pytest.mark.skipif(
    not DRIVER.exists(), reason="the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)")


class Fake:
    """The engine's side of the fake driver. Device memory is memory of the process: its addresses can be read."""

    def __init__(self) -> None:
        library = self._library = ctypes.CDLL(str(DRIVER))
        library.kvbm_fake_allocate.restype = ctypes.c_ulonglong
        library.kvbm_fake_allocate.argtypes = [ctypes.c_int, ctypes.c_size_t]
        library.kvbm_fake_make_stream.restype = ctypes.c_void_p
        library.kvbm_fake_synchronize.argtypes = [ctypes.c_void_p]
        library.kvbm_fake_copy.argtypes = [ctypes.c_ulonglong, ctypes.c_ulonglong, ctypes.c_size_t, ctypes.c_void_p]
        library.kvbm_fake_hold.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.kvbm_fake_capture.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._contexts: dict[int, ctypes.c_void_p] = {}
        library.cuMemsetD8Async.argtypes = [ctypes.c_ulonglong, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p]
        library.cuEventCreate.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        library.cuEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.cuStreamWaitEvent.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]

    def apply(self, text: str) -> None:
        """Sets it up, or has something fail: see tests/support/fake_cuda."""
        assert self._library.kvbm_fake_apply(text.encode())

    def allocate(self, size: int, ordinal: int = 0) -> int:
        address: int = self._library.kvbm_fake_allocate(ordinal, size)
        return address

    def memory(self, size: int) -> DeviceMemory:
        return DeviceMemory(self.allocate(size), size)

    def stream(self, ordinal: int = 0) -> int:
        made: int = self._library.kvbm_fake_make_stream(ordinal)
        return made

    def synchronize(self, stream: int) -> None:
        self._library.kvbm_fake_synchronize(stream)

    def hold(self, stream: int, on: bool) -> None:
        """Stops the stream until it is released."""
        self._library.kvbm_fake_hold(stream, on)

    def capture(self, stream: int, on: bool) -> None:
        """Begins and ends a capture into a graph."""
        self._library.kvbm_fake_capture(stream, on)

    # ---- work of the engine's own

    def copy_later(self, stream: int, to: int, origin: int, size: int) -> None:
        """Once the stream gets there."""
        assert self._library.kvbm_fake_copy(to, origin, size, stream)

    def fill_later(self, stream: int, address: int, value: int, size: int, ordinal: int = 0) -> None:
        """Once the stream gets there."""
        with self._on(ordinal):
            assert self._library.cuMemsetD8Async(address, value, size, stream) == 0

    def wait_for(self, stream: int, other: int, ordinal: int = 0) -> None:
        """Later work of `stream` runs after the work now in `other`."""
        event = ctypes.c_void_p()
        with self._on(ordinal):
            assert self._library.cuEventCreate(ctypes.byref(event), 0) == 0
            assert self._library.cuEventRecord(event, other) == 0
            assert self._library.cuStreamWaitEvent(stream, event, 0) == 0

    @contextmanager
    def _on(self, ordinal: int) -> Iterator[None]:
        """Makes the device's primary context current on this thread; it is never released."""
        if ordinal not in self._contexts:
            context = self._contexts[ordinal] = ctypes.c_void_p()
            assert self._library.cuInit(0) == 0
            assert self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal) == 0
        assert self._library.cuCtxPushCurrent_v2(self._contexts[ordinal]) == 0
        try:
            yield
        finally:
            self._library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
