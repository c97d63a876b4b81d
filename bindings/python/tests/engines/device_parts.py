"""vLLM's KV cache on a GPU, of the fake CUDA driver: real tensors over its memory that say they are on a device, and
torch.cuda as libkvbm.vllm uses it."""
from __future__ import annotations

import ctypes
import math
from typing import Any, Callable, Sequence

import torch
from fake_gpu import DRIVER, Fake

LIBRARY = {"host.capacity": "8MiB", "device.library": str(DRIVER)}


def _kind(ordinal: int) -> Any:
    return type("OnDevice", (torch.Tensor,), {"device": property(lambda self: torch.device("cuda", ordinal))})


_KINDS = [_kind(ordinal) for ordinal in range(3)]


def on_device(fake: Fake, ordinal: int = 0) -> Callable[[Sequence[int]], Any]:
    """Makes tensors of bfloat16 zeros in the memory of a device."""
    def zeros(shape: Sequence[int]) -> Any:
        size = 2 * math.prod(shape)
        memory = (ctypes.c_char * size).from_address(fake.allocate(size, ordinal))
        return torch.frombuffer(memory, dtype=torch.bfloat16).zero_().view(*shape).as_subclass(_KINDS[ordinal])

    return zeros


class Stream:
    def __init__(self, fake: Fake, ordinal: int, made: list[str]) -> None:
        self._fake, self._ordinal, self._made = fake, ordinal, made
        self.cuda_stream = fake.stream(ordinal)

    def wait_stream(self, other: Stream) -> None:
        self._made.append("waits")
        self._fake.wait_for(self.cuda_stream, other.cuda_stream, self._ordinal)


class Event:
    """Knows what a clock of the device said when its stream got there."""

    def __init__(self, clock: Clocks) -> None:
        self._clock, self._at = clock, 0.0

    def record(self, stream: Stream) -> None:
        self._at = self._clock.ms

    def query(self) -> bool:
        return self._clock.reached >= self._at

    def elapsed_time(self, end: Event) -> float:
        return end._at - self._at


class Clocks:
    """`ms`: when what is enqueued now will run; `reached`: how far the device is."""

    ms = reached = 0.0


class Cuda:
    """torch.cuda: one current stream for each device."""

    def __init__(self, fake: Fake, devices: int = 1) -> None:
        self._fake = fake
        self.clocks, self.said = Clocks(), list[str]()
        self.current = [Stream(fake, ordinal, self.said) for ordinal in range(devices)]

    def current_stream(self, device: int) -> Stream:
        return self.current[device]

    def Stream(self, device: int) -> Any:
        return Stream(self._fake, device, self.said)

    def Event(self, enable_timing: bool) -> Any:
        assert enable_timing
        return Event(self.clocks)
