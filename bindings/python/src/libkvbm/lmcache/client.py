"""The client behind LMCache's native L2 adapter: {"type": "native_plugin"}.

LMCache hands over texts and memoryviews and takes completions when a descriptor says so; nothing here needs LMCache's
own classes. The adapter for {"type": "plugin"} gives more: what a lookup found is kept until it is loaded.
"""
from __future__ import annotations

import os
import threading
from typing import Optional, Sequence

from ..engine import Identity
from .batch import Item, Name
from .options import Options, digest

Row = tuple[int, bool, str, Optional[list[bool]]]


class KvbmClient:
    """One completion for each submission, from drain_completions() once event_fd() is readable. Options are keyword
    arguments, as adapter_params of LMCache gives them. Thread: any."""

    def __init__(self, **params: object) -> None:
        options = Options.of(params)
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
            found = self._objects.lookup([self._name(key) for key in keys])
            found.release()
            return [size != 0 for size in found.sizes]
        return self._answer(self._objects.call(body, [False] * len(keys)))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        return self._answer(self._objects.call(lambda: self._objects.delete([self._name(key) for key in keys]),
                                               [False] * len(keys)))

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

    def _name(self, key: str) -> Name:
        """LMCache's text of a key: <model>@<rank>@<group>@<hash>[@<salt>]. The whole text names the object."""
        fields = key.split("@")
        if self._replicated and len(fields) > 3 and _is_rank(fields[1]):
            fields[1] = f"{int(fields[1], 16) & ~0x00FF00FF:08x}"
        identity = Identity(model=fields[0] if len(fields) > 1 else "", element="",
                            layout="object of LMCache's native adapter", tokens=0, bytes=self._objects.piece_bytes,
                            hashing="LMCache")
        return Name(self._objects.space(identity), digest(*fields))

    def _writes(self, key: str) -> bool:
        fields = key.split("@")
        return not (self._replicated and len(fields) > 3 and _is_rank(fields[1]) and int(fields[1], 16) & 0x00FF0000)

    def _items(self, keys: Sequence[str], views: Sequence[memoryview]) -> list[Item]:
        return self._objects.call(
            lambda: [Item(self._name(key), memoryview(view).cast("B")) for key, view in zip(keys, views, strict=True)],
            [])

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
