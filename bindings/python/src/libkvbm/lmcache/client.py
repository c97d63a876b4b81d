"""The client behind LMCache's native L2 adapter: {"type": "native_plugin"}.

LMCache hands over texts and memoryviews and takes completions when a descriptor says so; nothing here needs LMCache's
own classes. The adapter for {"type": "plugin"} gives more: what a lookup found is kept until it is loaded.
"""
from __future__ import annotations

import os
import threading
from typing import Optional, Sequence

from ..engine import ConfigurationError
from ..engine.facts.lmcache import hashing_of, native_identity, without_rank
from . import FOUND
from .batch import Item, Name
from .models import Models
from .options import Options, digest

Row = tuple[int, bool, str, Optional[list[bool]]]


class KvbmClient:
    """One completion for each submission, from drain_completions() once event_fd() is readable. Options are keyword
    arguments, as adapter_params of LMCache gives them. Thread: any."""

    def __init__(self, **params: object) -> None:
        options = Options.of(params)
        self._weak_hashes = options.configuration.weak_hashes
        self._models = Models(options.configuration.revision)
        self._objects = options.open("libkvbm under LMCache")
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._next = 0
        self._open = True
        self._replicated = options.replicated

    def event_fd(self) -> int:
        return self._fd

    def submit_batch_set(self, keys: Sequence[str], memoryviews: Sequence[memoryview]) -> int:
        number = self._number()
        mine = [i for i, key in enumerate(keys) if self._writes(key)]
        items = self._items([keys[i] for i in mine], [_writable(memoryviews[i]) for i in mine])

        def done(good: list[bool]) -> None:
            del items[:]
            failed = len(mine) - sum(good)
            bools = [True] * len(keys)
            for i, ok in zip(mine, good):
                bools[i] = ok
            self._finish(number, failed == 0, f"{failed} of {len(keys)} objects were not kept" if failed else "", bools)

        if len(items) != len(mine):
            done([False] * len(mine))
        else:
            self._objects.store(list(items), done)
        return number

    def submit_batch_get(self, keys: Sequence[str], memoryviews: Sequence[memoryview]) -> int:
        number = self._number()
        items = self._items(keys, memoryviews)

        def done(good: list[bool]) -> None:
            del items[:]
            self._finish(number, True, "", good)

        if len(items) != len(keys):
            done([False] * len(keys))
        else:
            self._objects.load(list(items), done)
        return number

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        def body() -> list[bool]:
            names = self._names(keys)
            found = self._objects.lookup(list(names.values()))
            found.release()
            there = {i for i, size in zip(names, found.sizes) if size != 0}
            return [i in there for i in range(len(keys))]
        return self._answer(self._objects.call(body, [False] * len(keys)))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        def body() -> list[bool]:
            names = self._names(keys)
            gone = dict(zip(names, self._objects.delete(list(names.values()))))
            return [gone.get(i, False) for i in range(len(keys))]
        return self._answer(self._objects.call(body, [False] * len(keys)))

    def drain_completions(self) -> list[Row]:
        with self._lock:
            if self._rows:
                os.eventfd_read(self._fd)
            rows, self._rows = self._rows, []
        return rows

    def close(self) -> None:
        """Waits for what is in flight. Twice is fine."""
        with self._lock:
            if not self._open:
                return
            self._open = False
        self._objects.close()
        with self._lock:
            os.close(self._fd)
            self._fd = -1

    # ---- inside

    def _name(self, key: str) -> Optional[Name]:
        """LMCache's text of a key: <model>@<rank>@<group>@<hash>[@<salt>]. The whole text names the object. None for an
        object without a unique name: it is neither stored nor looked up."""
        fields = key.split("@")
        if self._replicated and len(fields) > 3 and _is_rank(fields[1]):
            fields[1] = f"{without_rank(int(fields[1], 16)):08x}"
        try:
            made_by = hashing_of(len(fields[3]) // 2 if len(fields) > 3 else 0, self._weak_hashes)
        except ConfigurationError as error:
            self._objects.aside.step(str(error))
            return None
        model = self._models.of(fields[0] if len(fields) > 1 else "")
        if model is None:
            return None
        return Name(self._objects.space(native_identity(FOUND, model, self._objects.piece_bytes, made_by)), digest(*fields))

    def _names(self, keys: Sequence[str]) -> dict[int, Name]:
        """The objects with a name, by their places."""
        named = {i: self._name(key) for i, key in enumerate(keys)}
        return {i: name for i, name in named.items() if name is not None}

    def _writes(self, key: str) -> bool:
        fields = key.split("@")
        return not (self._replicated and len(fields) > 3 and _is_rank(fields[1]) and int(fields[1], 16) & 0x00FF0000)

    def _items(self, keys: Sequence[str], views: Sequence[memoryview]) -> list[Item]:
        """Fewer than keys, if one has no name."""
        def body() -> list[Item]:
            names = self._names(keys)
            return [Item(names[i], memoryview(view).cast("B")) for i, (_, view) in enumerate(zip(keys, views, strict=True))
                    if i in names]
        return self._objects.call(body, [])

    def _number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def _answer(self, bools: list[bool]) -> int:
        number = self._number()
        self._finish(number, True, "", bools)
        return number

    def _finish(self, number: int, ok: bool, error: str, bools: list[bool]) -> None:
        with self._lock:
            if self._fd >= 0:
                self._rows.append((number, ok, error, bools))
                os.eventfd_write(self._fd, 1)


def _is_rank(text: str) -> bool:
    return len(text) == 8 and all(c in "0123456789abcdefABCDEF" for c in text)


def _writable(view: memoryview) -> memoryview:
    """The library describes memory as an engine's cache, which is writable; bytes of a read-only buffer are copied."""
    return memoryview(bytearray(view)) if memoryview(view).readonly else view
