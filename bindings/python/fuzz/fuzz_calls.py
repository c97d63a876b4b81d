"""Calls the layer with arguments of any kind, in any order, on objects in any state. Nothing but a Python exception of
the kinds below may come of it: no crash, no hang, no SystemError, and in the end the library still does what it should.

    fuzz_calls.py --seed S --runs N     a run from a seed (what ./test does)
    fuzz_calls.py [libFuzzer options]   with atheris, where it is installed
"""
from __future__ import annotations

import array
import contextlib
import faulthandler
import gc
import os
import random
import sys
from typing import Any, Callable, Optional

for name in [name for name in os.environ if name.startswith("KVBM_")]:
    del os.environ[name]

atheris: Any = None
if "--seed" not in sys.argv:
    try:
        import atheris  # type: ignore[import-not-found, no-redef]
    except ImportError:
        sys.exit("skipped: atheris is not installed (pip install atheris); or give --seed and --runs")
with atheris.instrument_imports() if atheris is not None else contextlib.nullcontext():
    import libkvbm

BLOCK = 512
N_BLOCKS = 8
EXPECTED = (libkvbm.KvbmError, TypeError, ValueError, BufferError, IndexError, OverflowError, MemoryError,
            AttributeError)
SIZES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 64, 128, 512, 4096)


class Choices:
    """Decisions read from the input; an input that is at its end decides for zero."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def below(self, n: int) -> int:
        return (self.byte() << 8 | self.byte()) % n

    def one_of(self, items: Any) -> Any:
        return items[self.below(len(items))]

    def number(self) -> int:
        kind = self.below(8)
        if kind < 5:
            return self.below(12)
        large = (-1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1, 1 << 64, -7)
        return int(self.one_of(large))

    def blob(self) -> Any:
        size = self.one_of(SIZES)
        data = bytearray(self.byte() for _ in range(min(size, 24))) + bytearray(max(size - 24, 0))
        kind = self.below(6)
        if kind == 0:
            return bytes(data)
        if kind == 1:
            return memoryview(data)[::2]
        if kind == 2:
            return memoryview(data).toreadonly()
        if kind == 3 and len(data) % 4 == 0:
            return array.array(self.one_of("IifB"), bytes(data))
        return data

    def anything(self) -> Any:
        kind = self.below(8)
        if kind < 2:
            return self.number()
        if kind < 4:
            return self.blob()
        return self.one_of((None, "text", "\0", 1.5, [], [1, 2], ["x"], object(), b"", True, range(3), [b"k" * 16]))


class World:
    def __init__(self) -> None:
        self.context = libkvbm.Context()
        self.fresh()

    def fresh(self) -> None:
        self.manager = libkvbm.Manager(self.context, block_bytes=BLOCK, host_capacity_bytes=1 << 16)
        self.ns = libkvbm.Namespace(self.manager, "fuzz")
        self.kv = bytearray(N_BLOCKS * BLOCK)
        self.cache = libkvbm.Cache(self.manager, self.ns, N_BLOCKS, tensors=[self.kv])
        self.queue = libkvbm.Queue(self.context, 4)
        self.keys = libkvbm.Keys.chain(self.ns, range(N_BLOCKS), 1)
        self.matches: list[libkvbm.Match] = []
        self.blocks: list[libkvbm.Blocks] = []
        self.views: list[memoryview] = []
        self.operations: list[Any] = []
        self.coded: list[Any] = []

    # ---- arguments: mostly of the right kind

    def some_keys(self, c: Choices) -> Any:
        if c.below(4) == 0:
            return c.anything()
        first = c.below(N_BLOCKS)
        return self.keys[first:first + 1 + c.below(N_BLOCKS)]

    def some_ids(self, c: Choices, n: int) -> Any:
        if c.below(4) == 0:
            return c.anything()
        return [c.below(N_BLOCKS + 1) for _ in range(n if c.below(4) else c.below(12))]

    def a_match(self, c: Choices) -> Any:
        return c.one_of(self.matches) if self.matches and c.below(8) else c.anything()

    def some_blocks(self, c: Choices) -> libkvbm.Blocks:
        if not self.blocks:
            self.blocks.append(self.manager.allocate(self.ns, 2))
        return c.one_of(self.blocks)  # type: ignore[no-any-return]

    # ---- calls

    def lookup(self, c: Choices) -> None:
        self.matches.append(self.cache.lookup(self.some_keys(c), mode=c.one_of((0, 0, 1, 2, c.number()))))
        del self.matches[:-4]

    def store(self, c: Choices) -> None:
        keys = self.some_keys(c)
        n = len(keys) if isinstance(keys, libkvbm.Keys) else 1
        form = c.below(3)
        ids = self.some_ids(c, n)
        options: dict[str, Any] = {"unchained": True}
        if c.below(4) == 0:
            options[c.one_of(("priority", "parent", "positions", "timeout_ns", "unit_keys"))] = c.anything()
        if form == 0:
            self.cache.store(keys, ids, **options)
        elif form == 1:
            self.operations.append(self.cache.store_submit(keys, ids, self.queue, **options))
        else:
            self.operations.append(self.cache.store_future(keys, ids, **options))
        del self.operations[:-4]

    def load(self, c: Choices) -> None:
        match = self.a_match(c)
        n = match.hits if isinstance(match, libkvbm.Match) else 1
        options: dict[str, Any] = {}
        if c.below(4) == 0:
            name = c.one_of(("first_key", "first_layer", "n_layers", "positions", "timeout_ns"))
            options[name] = c.anything()
        self.cache.load(match, self.some_ids(c, n), **options)

    def code(self, c: Choices) -> None:
        cache: Any = self.cache
        ids = self.some_ids(c, 2)
        mode = c.one_of(("off", "default", "zstd", "int8", "int4", "fp8_e4m3", c.number(), c.anything()))
        how: dict[str, Any] = {"element": c.one_of((0, 1, 1, 2, 3)), "row": c.one_of((0, 16, 64))}
        if c.below(4) == 0:
            how[c.one_of(("part", "element", "row", "rows", "stream"))] = c.one_of((c.number(), c.anything()))
        coded = c.one_of(self.coded) if self.coded and c.below(8) else c.anything()
        if isinstance(coded, bytes) and c.below(4) == 0:
            coded = bytearray(coded)[:c.number() % (len(coded) + 1)] + c.blob()
        uses: list[Callable[[], object]] = [
            lambda: self.coded.append(cache.encode(ids, mode, **how)),
            lambda: self.coded.append(cache.encode(ids, mode, **how)),
            lambda: cache.encode(ids, mode, into=c.anything(), **how),
            lambda: cache.decode(coded, ids, allow_lossy=bool(c.below(2)), **how),
            lambda: cache.decode(coded, ids, allow_lossy=bool(c.below(2)), **how),
            lambda: cache.code_room(c.one_of((c.number(), c.anything())), **how),
        ]
        c.one_of(uses)()
        del self.coded[:-4]

    def attach(self, c: Choices) -> None:
        part = libkvbm.Part(c.below(2), libkvbm.Shard(c.below(3), c.below(3)))
        tensor = libkvbm.Tensor(c.blob(), c.number(), c.number())
        libkvbm.Cache(self.manager, self.ns, c.number(), [libkvbm.CachePart([tensor], c.one_of((100, 0, 7)), part)])

    def make_keys(self, c: Choices) -> None:
        maker = c.below(4)
        if maker == 0:
            libkvbm.Keys.chain(self.ns, c.anything(), c.number(), previous=c.one_of((None, c.anything())),
                               extras=c.one_of((None, c.anything())))
        elif maker == 1:
            libkvbm.Keys.content(self.ns, c.anything(), c.number())
        elif maker == 2:
            libkvbm.Keys.from_hashes(self.ns, c.anything(), c.one_of((None, c.number())))
        else:
            keys = libkvbm.Keys(c.anything())
            keys[c.number():c.number()], keys[c.number()]

    def allocate(self, c: Choices) -> None:
        blocks = self.manager.allocate(self.ns, c.below(5) if c.below(8) else c.number())
        self.blocks.append(blocks)
        del self.blocks[:-4]

    def change_blocks(self, c: Choices) -> None:
        blocks = self.some_blocks(c)
        uses: list[Callable[[], object]] = [
            blocks.complete, lambda: blocks.complete(c.anything()),
            lambda: blocks.register(self.ns, self.keys[:len(blocks)]),
            lambda: blocks.register(self.ns, self.some_keys(c), unchained=True, parent=c.anything()),
            blocks.release, lambda: self.blocks.append(blocks.clone()), lambda: self.blocks.append(blocks.downgrade()),
            lambda: self.blocks.append(blocks.upgrade()), lambda: self.blocks.extend(blocks.split(c.below(4))),
            lambda: self.blocks.extend(blocks.take([c.number()], [c.below(3)])), blocks.slots,
        ]
        c.one_of(uses)()

    def look_at_blocks(self, c: Choices) -> None:
        blocks = self.some_blocks(c)
        view = blocks.view(c.below(3) if c.below(4) else c.number())
        if not view.readonly:
            view[:1] = b"\x07"
        bytes(view)
        self.views.append(view)
        del self.views[:-3]

    def drop_views(self, c: Choices) -> None:
        self.views.clear()
        if c.below(4) == 0:
            gc.collect()

    def care(self, c: Choices) -> None:
        keys, part = self.some_keys(c), c.one_of((None, None, libkvbm.Part(c.below(2))))
        uses: list[Callable[[], object]] = [
            lambda: self.manager.drop(self.ns, keys, part=part), lambda: self.manager.hint(self.ns, keys, c.number()),
            lambda: self.manager.pin(self.ns, keys, c.number(), c.number()),
            lambda: self.manager.unpin_owner(c.number()),
            lambda: self.manager.unpin(libkvbm.Pin(c.number(), 0)), lambda: self.manager.prefetch(self.ns, keys),
            lambda: self.manager.offload(self.ns, keys, c.number()), lambda: list(self.manager.scan()),
            lambda: self.manager.locate(self.ns, keys, request_keys=c.one_of((None, [c.number()]))),
            lambda: self.manager.stats(), lambda: self.manager.metrics(), lambda: self.manager.nodes(),
            lambda: self.ns.set_quota(c.number(), c.number()), lambda: self.manager.flush(1000),
            lambda: self.manager.flush(1000, durable=True),
            lambda: libkvbm.Namespace(self.manager, c.anything(), secret=c.anything(), epoch=c.number()),
            lambda: libkvbm.Geometry(c.number(), [libkvbm.Component(c.number(), c.number(), c.number(), c.number())]),
            lambda: libkvbm.Offer(self.cache, bytes(16), [0], rank=c.number()),
            lambda: libkvbm.Session(self.cache, c.anything(), [0], [libkvbm.Source(c.anything(), c.number())]),
            lambda: self.manager.subscribe(c.one_of((None, self.queue))),
            lambda: libkvbm.Queue(self.context, c.number()),
        ]
        c.one_of(uses)()

    def poll(self, c: Choices) -> None:
        self.queue.poll(1 + c.below(4))
        self.queue.poll_events(1 + c.below(4))
        self.queue.wait(c.below(3), 1 + c.below(4))

    def end(self, c: Choices) -> None:
        item = c.one_of((self.manager, self.ns, self.cache, self.queue, *self.matches, *self.blocks))
        item.release() if hasattr(item, "release") else item.close()

    def verify(self) -> None:
        """A block that is stored and found comes back as it was, and so does one that is coded."""
        self.fresh()
        for i in range(N_BLOCKS):
            self.kv[i * BLOCK:(i + 1) * BLOCK] = bytes([i + 1]) * BLOCK
        self.cache.store(self.keys, range(N_BLOCKS))
        self.kv[:] = bytes(len(self.kv))
        with self.cache.lookup(self.keys) as match:
            assert match.hits == N_BLOCKS
            outcome = self.cache.load(match, range(N_BLOCKS))
        assert list(outcome.item_status) == [0] * N_BLOCKS
        coded = self.cache.encode(range(N_BLOCKS), element=libkvbm.Element.BF16, row=64)
        stored, self.kv[:] = bytes(self.kv), bytes(len(self.kv))
        self.cache.decode(coded, range(N_BLOCKS), element=libkvbm.Element.BF16, row=64)
        assert self.kv == stored
        assert all(self.kv[i * BLOCK:(i + 1) * BLOCK] == bytes([i + 1]) * BLOCK for i in range(N_BLOCKS))


CALLS = (World.lookup, World.lookup, World.store, World.store, World.load, World.load, World.code, World.code,
         World.attach, World.make_keys, World.allocate, World.change_blocks, World.change_blocks, World.look_at_blocks,
         World.drop_views, World.care, World.care, World.poll, World.end)
world: Optional[World] = None


def one_input(data: bytes) -> None:
    global world
    world = world or World()
    world.fresh()
    choices = Choices(data)
    for _ in range(24):
        try:
            choices.one_of(CALLS)(world, choices)
        except EXPECTED:
            pass
    world.queue.close()


def main() -> None:
    faulthandler.enable()
    if "--seed" in sys.argv:
        seed, runs = (int(sys.argv[sys.argv.index(name) + 1]) for name in ("--seed", "--runs"))
        source = random.Random(seed)
        for _ in range(runs):
            one_input(source.randbytes(400))
        assert world is not None
        world.verify()
        print(f"{runs} inputs from seed {seed}: no crash")
        return
    atheris.Setup(sys.argv, atheris.instrument_func(one_input))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
