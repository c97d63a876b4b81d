"""vLLM goes on, with the same outputs, when its KV space is too small, when the owner of a shared tier set is killed,
and when the disk is lost. The model is a small one with random weights in float32: its outputs do not depend on how
requests are batched."""
from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine import RANDOM, Engine, EngineError
from hooks import HOOKS, connector, kv_transfer

F32 = {**RANDOM, "dtype": "float32"}
OWNER = """
import json, sys, time
import libkvbm
options = json.loads(sys.argv[1])
context = libkvbm.Context({"host.capacity": "64MiB"})
manager = libkvbm.Manager(context, block_bytes=options["block_bytes"], share=True,
                          tiers=[libkvbm.Tier(options["disk"], 1 << 30)])
print(manager.share().role == libkvbm.ShareRole.OWNER, flush=True)
while True:
    time.sleep(1)
    print(manager.stats().tiers[0].blocks, flush=True)
"""

# vLLM counts hits of requests that were preempted nowhere that can be read.
COUNT = """
connector = child.core().scheduler.connector
child.reloaded = []
allocated = connector.update_state_after_alloc
def count(request, blocks, tokens):
    if request.num_preemptions > 0 and tokens > 0:
        child.reloaded.append(tokens)
    return allocated(request, blocks, tokens)
connector.update_state_after_alloc = count
"""


def prompts_of(n: int, tokens: int, seed: int) -> list[list[int]]:
    chosen = random.Random(seed)
    return [[chosen.randrange(3, 510) for _ in range(tokens)] for _ in range(n)]


@pytest.mark.parametrize("hook", HOOKS)
def test_preempted_requests_resume_by_reload(hook: str, tiny: Path, tmp_path: Path) -> None:
    prompts, more = prompts_of(4, 128, 1), 160
    # Each request needs nine blocks at its end, four at once do not fit.
    llm = F32 | {"num_gpu_blocks_override": 24, "max_model_len": 512}
    with Engine(tiny, llm | {"kv_transfer_config": kv_transfer(hook, tmp_path / "disk")}) as engine:
        alone = [engine.generate([prompt], more, salt="alone")[0] for prompt in prompts]
        assert engine.metric("vllm:num_preemptions") == 0
        engine.run(COUNT)
        together = engine.generate(prompts, more, salt="together")
        assert [output.tokens for output in together] == [output.tokens for output in alone]
        preempted = engine.metric("vllm:num_preemptions")
        reloaded = engine.run("result = child.reloaded")
        print(f"{hook}: {preempted:.0f} preemptions; tokens that came back instead of being computed: {reloaded}")
        assert preempted > 0 and sum(reloaded) >= 32
        # The directory goes away under it: what it had is lost, and nothing else.
        shutil.rmtree(tmp_path / "disk")
        new = prompts_of(2, 300, 2)
        first = engine.generate(new, 8)
        engine.reset()
        assert [o.tokens for o in engine.generate(new, 8)] == [o.tokens for o in first]


@pytest.mark.parametrize("hook", [*HOOKS, "connector"])
def test_the_owner_of_the_tiers_is_killed(hook: str, tiny: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    record = 2 * 2 * 32 * 2 * 32 * 4  # layers, KV heads, tokens, K and V of a head, bytes of float32
    owner = subprocess.Popen([sys.executable, "-c", OWNER, json.dumps({"block_bytes": record, "disk": str(disk)})],
                             stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None and owner.stdout.readline() == "True\n"
        own = {"disk": str(disk), "disk_capacity": "1GiB", "share": True}
        transfer = connector(**own) if hook == "connector" else kv_transfer(hook, disk, share=True)
        with Engine(tiny, F32 | {"kv_transfer_config": transfer}) as engine:
            prompts = prompts_of(6, 500, 3)
            first = engine.generate(prompts, 16)
            blocks = 0
            for _ in range(100):  # the owner has them
                blocks = int(owner.stdout.readline())
                if blocks >= 6 * 15:
                    break
            assert blocks >= 6 * 15
            engine.reset()
            assert sum(output.cached for output in engine.generate(prompts, 16)) >= 6 * 15 * 32
            engine.reset()
            engine.send("generate", prompts=prompts, max_tokens=64)
            owner.kill()
            lost = engine.generated()
            assert [output.tokens[:16] for output in lost] == [output.tokens for output in first]
            engine.reset()
            after = engine.generate(prompts, 16)
            assert [output.tokens for output in after] == [output.tokens for output in first]
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("hook", [*HOOKS, "connector"])
def test_the_first_that_an_engine_computes_may_be_one_token(hook: str, tiny: Path) -> None:
    """As for a prompt that is in the cache but for its last token: vLLM alone ends there on processors with AMX."""
    with Engine(tiny, RANDOM | {"kv_transfer_config": connector() if hook == "connector" else kv_transfer(hook)}) as engine:
        assert len(engine.generate([[5]], 4)[0].tokens) == 4


# The next load finds nothing, as if its blocks had gone between the lookup and it.
BREAK = """
manager = child.core().scheduler.connector.connector_scheduler.manager
prepare = manager.prepare_load
def broken(keys, request):
    found = prepare(keys, request)
    found.matches.clear()
    manager.prepare_load = prepare
    return found
manager.prepare_load = broken
"""


def test_a_load_that_fails_is_computed(tiny: Path) -> None:
    (prompt,) = prompts_of(1, 330, 4)
    with Engine(tiny, F32 | {"kv_transfer_config": kv_transfer("direct")}) as engine:
        first = engine.generate([prompt], 16)[0]
        engine.reset()
        engine.run(BREAK)
        assert engine.generate([prompt], 16)[0].tokens == first.tokens
        assert "Recovered from KV load failure" in engine.said()
        engine.reset()
        again = engine.generate([prompt], 16)[0]
        assert again.cached == 320 and again.tokens == first.tokens


OURS = "ours = list(child.core().scheduler.connector._ours())\n"


@pytest.mark.parametrize("hook", HOOKS)
def test_what_is_quicker_to_compute_is_not_loaded(hook: str, tiny: Path, tmp_path: Path) -> None:
    (prompt,) = prompts_of(1, 330, 5)
    with Engine(tiny, F32 | {"kv_transfer_config": kv_transfer(hook, tmp_path / "disk")}) as engine:
        first = engine.generate([prompt], 16)[0]
    with Engine(tiny, F32 | {"kv_transfer_config": kv_transfer(hook, tmp_path / "disk", weigh=True)}) as engine:
        engine.generate(prompts_of(1, 330, 6), 2)
        (measured,) = engine.run(OURS + "result = [one.speed.block_ns(32) for one in ours]")
        assert measured > 0
        engine.run(OURS + "for one in ours:\n    one.speed.block_ns = lambda tokens: 1")
        again = engine.generate([prompt], 16)[0]
        # One block may have come up meanwhile: the disk is measured with it, and what is in host memory is loaded.
        assert again.cached <= 32 and again.tokens == first.tokens
        assert engine.metric("vllm:kvbm_aside") == 0


@pytest.mark.parametrize("own, said", [
    ({"disc": "/x"}, "there is no option 'disc'"),
    ({"settings": {"host.capacity": "1KiB"}}, "libkvbm could not be started"),
])
def test_a_mistake_refuses_startup_in_a_sentence(own: dict[str, Any], said: str, tiny: Path) -> None:
    transfer = kv_transfer("tiering")
    transfer["kv_connector_extra_config"]["kvbm"] |= own
    with pytest.raises(EngineError, match=said):
        Engine(tiny, F32 | {"kv_transfer_config": transfer})
