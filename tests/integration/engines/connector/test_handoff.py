"""One vLLM computes prompts, another goes on from their KV."""
from __future__ import annotations

import time
from pathlib import Path
from typing import Iterator

import pytest

from connector.support import ask, count, prompt, same, same_kv, transfer
from engine import Engine, Output

PREFILL = {"do_remote_decode": True}
HELD = '''
pool = child.core().scheduler.kv_cache_manager.block_pool
result = sum(1 for block in pool.blocks if block.ref_cnt > 0 and not block.is_null)
'''


@pytest.fixture(scope="module")
def pair(smollm2: Path) -> Iterator[tuple[Engine, Engine]]:
    with Engine(smollm2, transfer("kv_producer", handoff_timeout=3, cache=False)) as prefill:
        with Engine(smollm2, transfer("kv_consumer", handoff_wait=5, cache=False)) as decode:
            yield prefill, decode


def single(engine: Engine, tokens: list[int], n: int) -> Output:
    return engine.generate([tokens], max_tokens=n, logprobs=0)[0]


def test_what_another_process_decodes_is_what_one_process_computes(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    for length in (330, 320, 31):  # into a block, whole blocks, less than one
        tokens = prompt(length, length)
        known = prefill.kv()
        first, params = ask(prefill, tokens, 1, PREFILL)
        # The prompt's blocks; what either engine adds to them it computes itself.
        kv = {name: digest for name, digest in prefill.kv().items() if name not in known}
        before = count(decode, "received_requests")
        got, _ = ask(decode, tokens, 24, params)
        # Of a prompt that is there whole the last token is computed again, for what comes after it.
        same_kv(kv, decode.kv(), length // 32, recomputed=length % 32 == 0)
        expected = single(prefill, tokens, 24)
        assert first.tokens == expected.tokens[:1]
        same(expected, got)
        assert count(decode, "received_requests") == before + 1
    assert count(decode, "receive_failures") == 0


def test_a_decode_side_that_has_the_prompt_lets_the_prefill_go(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    tokens = prompt(330, 7)
    _, params = ask(prefill, tokens, 1, PREFILL)
    expected, _ = ask(decode, tokens, 8, params)
    _, params = ask(prefill, tokens, 1, PREFILL)
    got, _ = ask(decode, tokens, 8, params)
    same(expected, got)


def test_blocks_of_a_prefill_that_nobody_fetches_are_freed_in_time(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    tokens = prompt(330, 8)
    before = count(prefill, "send_failures")
    _, params = ask(prefill, tokens, 1, PREFILL)
    assert prefill.run(HELD) >= 11
    time.sleep(3.5)
    ended = time.monotonic() + 20
    while prefill.run(HELD) > 0 and time.monotonic() < ended:
        single(prefill, prompt(40, 9), 2)  # vLLM hears of it at its next step
    assert prefill.run(HELD) == 0
    single(prefill, prompt(40, 9), 2)
    assert count(prefill, "send_failures") == before + 1
    assert prefill.said().count("was not handed over") == before + 1
    # A decode side that asks too late computes the prompt.
    got, _ = ask(decode, tokens, 8, params)
    same(single(prefill, tokens, 8), got)


def test_parameters_that_are_not_ours_are_computed(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    tokens = prompt(100, 10)
    for params in ({"do_remote_prefill": True}, {"do_remote_prefill": True, "remote_offer": "0" * 32,
                                                 "remote_num_tokens": 100, "remote_nodes": [["a b\nname=x", "x"]]}):
        got, _ = ask(decode, tokens, 4, params)
        same(single(prefill, tokens, 4), got)
        decode.reset()


def test_a_prefill_process_that_is_killed_costs_no_request(pair: tuple[Engine, Engine]) -> None:
    prefill, decode = pair
    tokens, other = prompt(330, 11), prompt(330, 12)
    expected = single(decode, tokens, 8)
    assert decode.reset()
    _, params = ask(prefill, tokens, 1, PREFILL)
    prefill.kill()
    before = count(decode, "receive_failures")
    got, _ = ask(decode, tokens, 8, params)
    same(expected, got)
    assert count(decode, "receive_failures") == before + 1
    assert len(single(decode, other, 8).tokens) == 8  # the decode side keeps serving
