"""Shared parts of the scheduler's and the worker's side of direct offloading: the manager, a namespace and an attached
cache for each group of layers, and the running stores."""
from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Collection, Iterator, Mapping, Optional

from vllm.v1.kv_offload.base import get_offload_group_idx

from ..cache import Cache, Tensor
from ..engine import Configuration, ConfigurationError, Identity
from ..engine.configuration import flag_of
from ..key import Keys
from .identity import Running, identity_of
from .kernels import kernels_of
from .pages import being_started, chosen, pages_identity
from .place import Place, StepStream
from .store import Store, keys_of
from .tier import timeout_of
from .tiles import ask_for_tiles
from .worker import groups_of

LAYOUT = "a block of each tensor of the group, one after the other"
OPTIONS = ("identity", "load_timeout_s", "weigh")
# vLLM submits a store one step after it was prepared, two where it schedules ahead.
_SUBMITTED_STEPS = 3
_NEVER = -_SUBMITTED_STEPS
# A block that failed to load is stored again, and not offered again to the request that it failed for, for so long.
_FAILED_S = 60.0
_MOST_FAILED = 1 << 16


@dataclass
class GroupCache:
    """The blocks of one group of layers."""

    number: int
    tensors: list[Tensor]
    views: list[Any]
    n_blocks: int
    record_bytes: int
    ns: Any = None
    cache: Any = None


class Vault:
    """Thread: the engine's one; what libkvbm does beside it comes back through queues."""

    def __init__(self, config: Any, options: Mapping[str, object], kv_caches: Any) -> None:
        self._config = config
        self.timeout_ns = timeout_of(options)
        self.weigh = flag_of(options, "weigh") and len(config.groups) == 1
        self.block_tokens = int(config.groups[0].tokens_per_block)
        self.place = Place.of(tensor.tensor for tensor in kv_caches.tensors)
        self.between = StepStream(self.place)
        if not self.place.on_device:
            ask_for_tiles()
        self._groups = {config.groups[i].group_id: _group(config.groups[i].group_id, refs, kv_caches.tensors, self.place)
                        for i, refs in enumerate(kv_caches.group_data_refs)}
        self._order = [group.group_id for group in config.groups]
        library = Configuration.of(options, also=("events", *OPTIONS))
        self._engine = Running.here(config.groups[0].tokens_per_block, library)
        self._pages = self._pages_of(options, library)
        self._layout = _layout(config, self.place)
        largest = max(group.record_bytes for group in self._groups.values())
        self.store = Store("libkvbm's offloading", options, largest, also=OPTIONS)
        if self._engine.unfit is not None:
            self.store.aside.step(self._engine.unfit)
        self.copies, self.fetches = self.store.manager.queue(), self.store.queue()
        self._storing: dict[bytes, Optional[int]] = {}  # the step in which it was prepared, None: with the library
        self._failed: dict[bytes, float] = {}
        self._step = 0
        self._users = 2
        self._lock = threading.Lock()
        self._opened = False

    @property
    def usable(self) -> bool:
        return self._opened and not self.store.aside.stepped

    def open(self) -> None:
        """With the first request: vLLM says only then how it hashes."""
        if not self._opened and not self.store.aside.stepped:
            self.store.aside.call(self._open, None)

    def group(self, number: int) -> GroupCache:
        return self._groups[number]

    def names(self, group: GroupCache, keys: list[bytes], adapter: bytes) -> Keys:
        return keys_of(group.ns, keys, adapter)

    def spaces(self) -> dict[int, bytes]:
        """The current names of the groups' namespaces; they change with a reset."""
        return {number: group.ns.id for number, group in self._groups.items() if group.ns is not None}

    def by_group(self, keys: Collection[bytes]) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for key in keys:
            found.setdefault(get_offload_group_idx(key), []).append(bytes(key))
        return found

    def paired(self, keys: list[bytes], device_spec: Any) -> Iterator[tuple[int, list[bytes], list[int]]]:
        """Group, its keys, and its blocks of vLLM, of a transfer."""
        import numpy

        for part in groups_of(device_spec, numpy.arange(len(keys)), 1):
            yield self._order[part.number], [keys[i] for i in part.chunks], part.blocks.tolist()

    # ---- what is stored

    def there(self, key: bytes, adapter: bytes) -> bool:
        if self.has_failed(key):
            return False
        group = self._groups[get_offload_group_idx(key)]
        return self.store.find(group.ns, bytes(self.names(group, [key], adapter))) is True

    def being_stored(self, key: bytes) -> bool:
        prepared = self._storing.get(key, _NEVER)
        # One that vLLM forgets must not make requests wait for ever.
        return prepared is None or self._step - prepared < _SUBMITTED_STEPS

    def storing(self, keys: list[bytes]) -> None:
        self._storing.update((key, self._step) for key in keys)

    def submitted(self, keys: list[bytes]) -> None:
        self._storing.update((key, None) for key in keys)

    def step(self) -> None:
        """A step has been scheduled; what was prepared and not submitted since is over."""
        self._step += 1
        while self._storing:
            key, prepared = next(iter(self._storing.items()))
            if prepared is None or self._step - prepared < _SUBMITTED_STEPS:
                break
            del self._storing[key]

    def clear(self, group: GroupCache, blocks: list[int]) -> None:
        """Takes what a load that failed has left out of vLLM's blocks."""
        self.place.clear(group.views, blocks)

    def stored(self, keys: list[bytes]) -> None:
        for key in keys:
            self._storing.pop(key, None)
            self._failed.pop(key, None)

    def failed(self, keys: list[bytes]) -> None:
        if len(self._failed) > _MOST_FAILED:
            self._failed.clear()
        self._failed.update((key, time.monotonic() + _FAILED_S) for key in keys)

    def has_failed(self, key: bytes) -> bool:
        return bool(self._failed) and time.monotonic() < self._failed.get(key, 0)

    def invalidate(self) -> None:
        """Nothing that was stored is found any more."""
        self.store.invalidate([group.ns for group in self._groups.values() if group.ns is not None])

    # ---- the end

    def release(self) -> None:
        """Of either side; the second closes everything. vLLM frees the KV cache after it."""
        with self._lock:
            self._users -= 1
            if self._users != 0:
                return
        for group in self._groups.values():
            if group.cache is not None:
                group.cache.close()
            group.cache = group.ns = None
            group.tensors, group.views = [], []
        self._opened = False
        self.fetches.close()
        self.store.close()

    def _pages_of(self, options: Mapping[str, object], library: Configuration) -> Optional[Identity]:
        """The identity that all hooks of vLLM have alike, where that is asked for and blocks are pages of layers."""
        if chosen(options, ("engine", "pages")) != "pages":
            return None
        if self.place.on_device:
            raise ConfigurationError(f"identity pages is for vLLM on CPUs, and the KV cache is on {self.place.name}")
        config, first = self._config.groups[0], next(iter(self._groups.values()))
        if len(self._groups) != 1 or len(first.tensors) != len(config.layer_names):
            raise ConfigurationError(f"identity pages needs one group of layers with a tensor each: there are "
                                     f"{len(self._groups)} groups, and {len(first.tensors)} tensors in the first")
        return pages_identity(being_started(), library, config.layer_names, config.tokens_per_block, first.record_bytes)

    def _open(self) -> None:
        asked = self.store.configuration
        for group in self._groups.values():
            identity = self._pages or identity_of(self._config, self._engine, self._layout, group.record_bytes, asked.weak_hashes,
                                                  group.number)
            group.ns = identity.namespace(self.store.manager, tenant=asked.tenant, secret=asked.secret)
            group.cache = Cache(self.store.manager, group.ns, group.n_blocks, tensors=group.tensors,
                                memory=self.place.memory, device=self.place.device)
        self._opened = True


def _layout(config: Any, place: Place) -> str:
    """In words, with the kernels that order a block on a device: two kinds of them may share a disk."""
    if not place.on_device:
        return LAYOUT
    engine = being_started()
    kernels = set() if engine is None else {kernels_of(engine, layer) for group in config.groups
                                            for layer in group.layer_names}
    if not kernels or None in kernels:
        raise ConfigurationError("KvbmOffloadingSpec does not know the attention kernels of this KV cache, by which blocks "
                                 "on a GPU are ordered: use KvbmTieringSpec")
    return f"{LAYOUT}, by {' and '.join(sorted(str(one) for one in kernels))}"


def _group(number: int, refs: Any, tensors: Any, place: Place) -> GroupCache:
    described: list[Tensor] = []
    views: list[Any] = []
    size, n_blocks = 0, 0
    for index in sorted({ref.tensor_idx for ref in refs}):
        tensor, page = tensors[index].tensor, tensors[index].page_size_bytes
        n_blocks, stride = tensor.shape[0], tensor.stride(0) * tensor.element_size()
        described.append(place.tensor(tensor, (n_blocks - 1) * stride + page, stride, page))
        views.append(tensor)
        size += page
    return GroupCache(number, described, views, n_blocks, size)
