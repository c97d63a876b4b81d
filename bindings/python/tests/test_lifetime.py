"""Leaks, finalizers in any order, the end of the interpreter, forks, and threads that close what others use."""
from __future__ import annotations

import gc
import itertools
import os
import random
import resource
import subprocess
import sys
import textwrap
import threading
import weakref
from typing import Any

import pytest

import libkvbm

BLOCK = 4096
SETUP = """
import gc, os, sys, asyncio, libkvbm
context = libkvbm.Context()
manager = libkvbm.Manager(context, block_bytes=4096, host_capacity_bytes=1 << 20)
ns = libkvbm.Namespace(manager, "m")
keys = libkvbm.Keys.chain(ns, range(8), 1)
kv = bytearray(8 * 4096)
cache = libkvbm.Cache(manager, ns, 8, tensors=[kv])
cache.store(keys, range(8))
match = cache.lookup(keys)
blocks = match.blocks()
view = blocks.view()
queue = libkvbm.Queue(context, 8)
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-W", "error", "-c", SETUP + textwrap.dedent(program)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def everything() -> dict[str, Any]:
    context = libkvbm.Context()
    manager = libkvbm.Manager(context, block_bytes=BLOCK, host_capacity_bytes=1 << 18)
    ns = libkvbm.Namespace(manager, "m")
    keys = libkvbm.Keys.chain(ns, range(4), 1)
    cache = libkvbm.Cache(manager, ns, 4, tensors=[bytearray(4 * BLOCK)])
    cache.store(keys, range(4))
    match = cache.lookup(keys)
    blocks = match.blocks()
    queue = libkvbm.Queue(context, 4)
    operation = cache.store_submit(keys, range(4), queue)
    return {"context": context, "manager": manager, "ns": ns, "cache": cache, "match": match, "blocks": blocks,
            "view": blocks.view(), "queue": queue, "operation": operation}


def test_objects_are_forgotten_in_any_order() -> None:
    names = list(everything())
    chosen = random.Random(5).sample(list(itertools.permutations(names)), 60)
    for order in chosen:
        objects = everything()
        for name in order:
            del objects[name]


def test_objects_are_closed_in_any_order() -> None:
    names = list(everything())
    for order in random.Random(6).sample(list(itertools.permutations(names)), 40):
        objects = everything()
        for name in order:
            item = objects[name]
            if hasattr(item, "close"):
                item.close()
            elif hasattr(item, "release"):
                item.release()


def test_there_are_no_cycles() -> None:
    gc.collect()
    gc.disable()
    try:
        objects = everything()
        watched = [weakref.ref(item) for name, item in objects.items() if name not in ("operation", "view")]
        objects["cache"].store_future(objects["cache"].lookup(libkvbm.Keys(bytes(64))).keys, range(4)).result(10)
        objects["queue"].close()
        del objects
        assert [ref() for ref in watched] == [None] * len(watched)
    finally:
        gc.enable()


def test_nothing_is_leaked() -> None:
    def once(manager: libkvbm.Manager, ns: libkvbm.Namespace) -> None:
        keys = libkvbm.Keys.chain(ns, list(range(64)), 1, extras=[b"x" * 100] * 64)
        with libkvbm.Cache(manager, ns, 64, tensors=[bytearray(64 * BLOCK)]) as cache:
            cache.store(keys, list(range(64)), parent=keys[0])
            with cache.lookup(keys) as match:
                cache.load(match, list(range(match.hits)))
                match.items()
                match.blocks().views()
        blocks = manager.allocate(ns, 4)
        blocks.views()
        blocks.split(2)
        manager.stats(), manager.metrics(), list(manager.scan()), manager.locate(ns, keys)
        for wrong in (lambda: manager.lookup(ns, b"x"), lambda: manager.unpin(libkvbm.Pin(5, 1)), blocks.complete):
            with pytest.raises(libkvbm.KvbmError):
                wrong()

    with libkvbm.Context() as context, \
            libkvbm.Manager(context, block_bytes=BLOCK, host_capacity_bytes=1 << 20) as manager, \
            libkvbm.Namespace(manager, "m") as ns:
        for _ in range(30):
            once(manager, ns)
        before, objects = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(gc.get_objects())
        for _ in range(150):
            once(manager, ns)
        gc.collect()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        stats = manager.stats()
        assert (stats.holds, stats.matches, stats.operations_in_flight) == (0, 0, 0)
    # A leak of one of its memories would be 37 MiB; what the allocator keeps for itself depends on the machine.
    assert grown < 16384, f"{grown} KiB"
    assert len(gc.get_objects()) - objects < 200


def test_the_interpreter_ends_with_live_objects() -> None:
    run("print('end')")
    run("operation = cache.store_submit(keys, range(8), queue); future = cache.store_future(keys, range(8))")
    run("sys.modules['kept'] = (view, queue, cache)")
    run("""
        class Late:
            def __del__(self): self.cache.store(keys_kept, range(8)) if False else None
        late = Late(); late.cache = cache; late.me = late; late.view = view
    """)
    run("""
        import threading
        threading.Thread(target=queue.wait, daemon=True).start()
    """)
    run("""
        async def main():
            cache.store_async(keys, range(8))
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    """)


def test_a_forked_child_is_told_so() -> None:
    assert run("""
        pending = cache.store_submit(keys, range(8), queue)
        child = os.fork()
        if child == 0:
            told = 0
            for use in (manager.stats, lambda: manager.lookup(ns, keys), lambda: cache.store(keys, range(8)),
                        queue.poll, lambda: queue.wait(0), lambda: len(match), blocks.release,
                        lambda: blocks.view(), lambda: ns.id,
                        lambda: libkvbm.Manager(context), context.config, lambda: blocks.clone(),
                        lambda: libkvbm.Keys.chain(ns, range(8), 1), lambda: cache.store_future(keys, range(8)),
                        lambda: memoryview(view.obj), lambda: manager.queue()):
                try:
                    use()
                except libkvbm.ForkedError:
                    told += 1
                except BaseException as error:
                    print(type(error), error)
            print(told, "told")
            for item in (view, cache, match, ns, manager, queue, context):
                item.release() if hasattr(item, "release") else item.close()
            del view, blocks, cache, match, ns, manager, queue, context
            gc.collect()
            with libkvbm.Context() as mine, libkvbm.Manager(mine, host_capacity_bytes=8 << 20) as pool:
                with libkvbm.Namespace(pool, "m") as space:
                    pool.allocate(space, 1).view()[:4] = b"mine"
            sys.stdout.flush()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert queue.wait()[0].status == 0
        assert len(match) == 8 and bytes(view) == bytes(4096)
        cache.store(keys, range(8))
    """).strip().splitlines() == ["16 told"]


def test_threads_use_and_close_the_same_objects() -> None:
    errors: list[BaseException] = []
    for seed in range(6):
        objects = everything()
        context, manager, ns, cache = objects["context"], objects["manager"], objects["ns"], objects["cache"]
        keys = libkvbm.Keys.chain(ns, range(4), 1)
        blocks = objects["blocks"]

        def work(choice: random.Random) -> None:
            uses: list[Any] = [
                lambda: manager.lookup(ns, keys).blocks().views(), lambda: cache.store(keys, range(4)),
                lambda: cache.store_future(keys, range(4)).result(10), manager.stats, lambda: blocks.view()[0],
                lambda: cache.load(cache.lookup(keys), range(4)), lambda: manager.drop(ns, keys),
                lambda: blocks.take([0]), lambda: manager.allocate(ns, 2).complete(), lambda: list(manager.scan()),
                lambda: blocks.clone(),
            ]
            for _ in range(60):
                try:
                    choice.choice(uses)()
                except (libkvbm.KvbmError, BufferError, IndexError):
                    pass
                except BaseException as error:
                    errors.append(error)

        threads = [threading.Thread(target=work, args=(random.Random(seed * 10 + i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for item in (blocks, cache, ns, manager, context):
            item.release() if hasattr(item, "release") else item.close()
        for thread in threads:
            thread.join()
    assert errors == []


def test_the_module_needs_nothing_else() -> None:
    program = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('numpy', 'torch', 'cupy', 'ucp', 'typing_extensions'):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import libkvbm
libkvbm.Context().close()
"""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    subprocess.run([sys.executable, "-I", "-c", program], check=True, env=environment)
