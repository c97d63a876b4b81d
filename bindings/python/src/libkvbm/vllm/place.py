"""Where vLLM holds its KV cache, host memory or a CUDA device, and how copies are ordered with what it computes there.

torch is asked for nothing of CUDA before a tensor on a device was seen: where it has no CUDA, nothing of it is touched.
"""
from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Iterable, Optional, Sequence

import torch
from torch import cuda

from ..cache import DeviceMemory, Tensor
from ..constants import MemoryKind
from ..engine import ConfigurationError


@dataclass(frozen=True)
class Place:
    """Of one worker's cache, whole."""

    memory: MemoryKind
    device: int
    name: str

    @classmethod
    def of(cls, tensors: Iterable[Any]) -> Place:
        """Raises ConfigurationError for memory that the library does not know."""
        found = sorted({str(tensor.device) for tensor in tensors})
        if len(found) > 1:
            raise ConfigurationError(f"the KV cache of one worker is on {' and '.join(found)}: libkvbm attaches it where "
                                     "it lies in one place")
        device = torch.device(found[0]) if found else torch.device("cpu")
        if device.type == "cpu":
            return cls(MemoryKind.HOST, 0, "host memory")
        # torch for ROCm calls its devices cuda, too.
        if device.type != "cuda" or torch.version.hip is not None:
            kind = "a GPU of AMD" if device.type == "cuda" else str(device)
            raise ConfigurationError(f"the KV cache is on {kind}: libkvbm attaches host memory and CUDA devices. "
                                     "KvbmTieringSpec of libkvbm.vllm, whose pool vLLM fills with its own kernels, does it")
        index = device.index if device.index is not None else cuda.current_device()
        return cls(MemoryKind.CUDA, int(index), f"cuda:{index}")

    @property
    def on_device(self) -> bool:
        return self.memory == MemoryKind.CUDA

    def stream(self) -> Optional[int]:
        """The stream that vLLM computes on, for stores and loads that come behind what it holds by now; None: there are
        no streams. Streams are current by thread. Thread: the worker's."""
        return int(cuda.current_stream(self.device).cuda_stream) if self.on_device else None

    def tensor(self, view: Any, size: int, stride: int, page: int) -> Tensor:
        """The `size` bytes from a view's first one on, as blocks of `page` bytes that are `stride` apart."""
        if self.on_device:
            return Tensor(DeviceMemory(view.data_ptr(), size, view), block_stride=stride, page_bytes=page)
        flat = torch.empty(0, dtype=torch.uint8)
        flat.set_(view.untyped_storage(), view.storage_offset() * view.element_size(), (size,), (1,))
        return Tensor(flat, block_stride=stride, page_bytes=page)

    def clear(self, views: Sequence[Any], blocks: Iterable[int]) -> None:
        """Takes what a load that failed has left out of the engine's blocks. In device memory that is NaN, and kernels
        that read a page whole multiply what they mask by zero. On vLLM's stream: before whatever it computes next."""
        if self.on_device:
            for block in sorted(blocks):
                for view in views:
                    view[block].zero_()


class StepStream:
    """Loads between steps wait for what vLLM's stream held when a step began, and not for that step: nothing in it
    touches the blocks that they write. In host memory there is nothing to wait for. Thread: the worker's."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stream: Any = None

    def begin(self) -> None:
        if not self._place.on_device:
            return
        if self._stream is None:
            self._stream = cuda.Stream(self._place.device)
        self._stream.wait_stream(cuda.current_stream(self._place.device))

    def stream(self) -> Optional[int]:
        """For loads of this step; before the first one whatever vLLM's stream holds by now."""
        return self._place.stream() if self._stream is None else int(self._stream.cuda_stream)


class StepClock:
    """Computing times of steps. A device continues after the CPU has issued all work of a step. So on devices the
    device itself reads the clock, and the result comes some steps later. Thread: the worker's."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._began: Any = None
        self._waiting: deque[tuple[int, Any, Any]] = deque()

    def begin(self) -> None:
        self._began = self._now()

    def skip(self) -> None:
        self._began = None

    def end(self, tokens: int) -> list[tuple[int, int]]:
        """The step has computed so many tokens. (tokens, ns) of steps that are known by now."""
        if self._began is not None:
            self._waiting.append((tokens, self._began, self._now()))
            self._began = None
        known = []
        while self._waiting and (ns := self._between(*self._waiting[0][1:])) is not None:
            known.append((self._waiting.popleft()[0], ns))
        return known

    def _now(self) -> Any:
        if not self._place.on_device:
            return time.monotonic_ns()
        event = cuda.Event(enable_timing=True)
        event.record(cuda.current_stream(self._place.device))
        return event

    def _between(self, began: Any, ended: Any) -> Optional[int]:
        if not self._place.on_device:
            return int(ended - began)
        return int(began.elapsed_time(ended) * 1e6) if ended.query() else None
