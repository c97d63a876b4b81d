"""Measures how much libkvbm's work slows requests that run beside it. The engine's steps and the time between two
tokens while stores and loads run are compared with the same vLLM alone. A second vLLM alone (CONTROL) shows noise."""
from __future__ import annotations

import random
from collections import defaultdict
from typing import Sequence

from first_token import prompt_of
from fleet import CONTROL, PLAIN, Fleet, Member
from rows import Row, percentile_ms, say

TOKENS = 512  # of each prompt that comes while another request decodes
STORES, LOADS = "stores", "loads"
# Loads repeat the prompts: libkvbm loads them, vLLM alone finds them in its own cache, so both compute equally much.
LIMITS = {STORES: "vLLM alone, the same prompts", LOADS: "vLLM alone, the same prompts in its own cache"}
FIGURES = (("token", "inter_token_p50", 0.5), ("token", "inter_token_p99", 0.99), ("step", "step_p99", 0.99),
           ("schedule", "schedule_p50", 0.5), ("schedule", "schedule_p99", 0.99))
RUN = "from bench import paced\nresult = paced.run(llm, {prompts!r})"


def measure(fleet: Fleet, ways: Sequence[str], prompts: int, rounds: int) -> list[Row]:
    compared = (*ways, CONTROL)
    members = [fleet.members[name] for name in (PLAIN, *compared)]
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    chosen = random.Random(4)
    for number in range(rounds + 1):  # the first is not counted
        texts = [prompt_of(chosen, TOKENS) for _ in range(prompts)]
        for member in members[number % len(members):] + members[:number % len(members)]:
            for phase in (STORES, LOADS):
                for name, seconds in _paced(member, texts, phase).items():
                    if number > 0:
                        found[member.name, phase, name] += seconds
        say(f"decoding while others come: round {number} of {rounds}")
    return [row for way in compared for phase in (STORES, LOADS) for row in _rows(found, way, phase)]


def _paced(member: Member, texts: list[list[int]], phase: str) -> dict[str, list[float]]:
    if phase == STORES:
        member.engine.reset()
    else:
        member.settle()
        if member.name not in (PLAIN, CONTROL):
            member.forget()
    seconds: dict[str, list[float]] = member.engine.run(RUN.format(prompts=texts), timeout_s=600)
    return seconds


def _rows(found: dict[tuple[str, str, str], list[float]], way: str, phase: str) -> list[Row]:
    rows = []
    for kind, name, share in FIGURES:
        mine, alone = found[way, phase, kind], found[PLAIN, phase, kind]
        rows.append(Row(f"engines.{phase}.{way}.{name}", percentile_ms(mine, share), "ms",
                        percentile_ms(alone, share), LIMITS[phase]))
    return rows
