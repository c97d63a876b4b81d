"""Loads that the forward pass of their own step waits for, layer by layer: the CPU until the driver was given the
layer, the device until it has landed.

Behind these waits vLLM makes calls of the driver that wait for the stream: it copies the sampled tokens to pageable
memory. Such a call may hold a lock of the driver that a load needs to get on. So the device never waits for what the
driver was not given yet (WaitLayers.ISSUED), although the CPU could else launch the whole forward pass at once.

That a stream goes on behind such a wait does not say that the load was right. So the worker's answer to the step waits
for the loads' ends, and names the blocks that failed: vLLM then throws away what the step has computed of every request
that has them, and computes them. That needs a scheduler that makes no step before it has heard of the last one.
"""
from __future__ import annotations

import logging
from typing import Any, Sequence

from ... import Cache, KvbmError, Operation
from ...engine import ConfigurationError
from ..place import Place
from .options import Options

log = logging.getLogger("vllm.libkvbm")


def check_layers(options: Options, vllm_config: Any, kv_cache_config: Any) -> None:
    """Refuses the option `layers` where a failed load could become a wrong answer."""
    if not options.layers:
        return
    if not options.cache:
        raise ConfigurationError("layers is how the cache is loaded, and cache is false")
    if bool(vllm_config.scheduler_config.async_scheduling):
        raise ConfigurationError("layers needs --no-async-scheduling: vLLM would go on with what was computed behind a "
                                 "load before it hears that the load has failed")
    if vllm_config.speculative_config is not None:
        raise ConfigurationError("layers is not for speculative decoding: the draft's layers are computed after vLLM has "
                                 "asked what failed")
    if len(kv_cache_config.kv_cache_groups) != 1:
        raise ConfigurationError(f"layers is for models with one group of layers, and this one has "
                                 f"{len(kv_cache_config.kv_cache_groups)}: vLLM cannot be told which blocks failed")


class Awaited:
    """A load, and the layers that the forward pass has waited for."""

    def __init__(self, cache: Cache, operation: Operation) -> None:
        self.cache, self.operation = cache, operation
        self.layers: set[int] = set()


class Layered:
    """The loads of one step. Thread: the worker's."""

    def __init__(self, place: Place, layers: Sequence[str]) -> None:
        if not place.on_device:
            raise ConfigurationError(f"layers is for KV caches on CUDA devices, and this one is in {place.name}")
        self._place = place
        self._numbers = {name: number for number, name in enumerate(layers)}
        self._awaited: list[Awaited] = []
        self.failed = False  # of this step

    def begin(self) -> None:
        """A step begins; the loads of the last one have ended."""
        self._awaited.clear()
        self.failed = False

    def add(self, cache: Cache, operation: Operation) -> Awaited:
        made = Awaited(cache, operation)
        self._awaited.append(made)
        return made

    def wait(self, layer: str) -> None:
        """Makes later work of the device wait for this layer of every load. Blocks until the driver has the layer's
        transfer, or the load has ended."""
        number, stream = self._numbers.get(layer), self._place.stream()
        if number is None or stream is None:
            return
        for load in self._awaited:
            try:
                load.cache.wait_layer(load.operation, number, stream)
                load.layers.add(number)
            except KvbmError as error:
                log.warning("KvbmConnector: the device does not wait for layer %s of a load: %s", layer, error)

    def waited(self, load: Awaited) -> bool:
        """Whether the forward pass has waited for all of it. Where it has not, as in a CUDA graph that was captured with
        its attention, it has read what was there before."""
        return len(load.layers) == len(self._numbers)
