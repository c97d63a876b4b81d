"""Time to the first token of a repeated prompt: by each of libkvbm's hooks, by LMCache, and computed."""
from __future__ import annotations

import random
from collections import defaultdict
from typing import Sequence

from fleet import HOOKS, PLAIN, Fleet, Member
from rows import Row, median_ms, say

VOCABULARY = range(100, 40_000)
COMPUTED = "computed by the same vLLM alone"
BLOCK = 32


def prompt_of(chosen: random.Random, tokens: int) -> list[int]:
    return [chosen.choice(VOCABULARY) for _ in range(tokens)]


class Times:
    """Seconds to the first token by name, and how often something was not found that should have been."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.missed: dict[str, int] = defaultdict(int)

    def take(self, name: str, member: Member, prompt: Sequence[int], known: int = 0, *, keep: bool = True) -> None:
        """Asks; `known` are the first tokens that are to be found, but for the last one of all."""
        output = member.ask(prompt)
        if keep:
            self.seconds[name].append(output.first_token_s or output.seconds)
            if output.cached < min(known, len(prompt) - 1) // BLOCK * BLOCK:
                self.missed[name] += 1

    def row(self, name: str, of: str, limit: str, limit_name: str) -> Row:
        missed = self.missed[of]
        note = f"{missed} of {len(self.seconds[of])} not found whole" if missed else ""
        return Row(name, median_ms(self.seconds[of]), "ms", median_ms(self.seconds[limit]), limit_name, note)


def measure(fleet: Fleet, ways: Sequence[str], tokens: int, rounds: int) -> list[Row]:
    """Each round: every engine computes a prompt that is new to it, forgets it, and is asked again."""
    members = [fleet.members[name] for name in (PLAIN, *ways)]
    times, chosen = Times(), random.Random(1)
    for number in range(rounds + 1):  # the first is not counted: buffers are made
        keep = number > 0
        prompt = prompt_of(chosen, tokens)
        for member in _turned(members, number):
            times.take(f"{member.name}.computed", member, prompt, keep=keep)
            member.settle()
            if member.name == "tiering":  # hits in its own pool are not libkvbm's
                member.engine.reset()
                times.take("pool", member, prompt, tokens, keep=keep)
            member.forget()
            if member.name != PLAIN:
                times.take(member.name, member, prompt, tokens, keep=keep)
                member.engine.reset()
        say(f"repeated prompt of {tokens} tokens: round {number} of {rounds}")
    return _rows(times, ways, tokens)


def _turned(members: list[Member], number: int) -> list[Member]:
    """Rotates the members, so that each starts in turn."""
    first = number % len(members)
    return members[first:] + members[:first]


def _rows(times: Times, ways: Sequence[str], tokens: int) -> list[Row]:
    def name(what: str) -> str:
        return f"engines.first_token.{tokens}.{what}"

    computed = f"{PLAIN}.computed"
    rows = [Row(name("computed"), median_ms(times.seconds[computed]), "ms")]
    rows += [times.row(name(way), way, computed, COMPUTED) for way in ways]
    if "tiering" in ways:
        rows.append(times.row(name("vllm_pool"), "pool", computed, COMPUTED))
    for hook in (way for way in ways if way in HOOKS):
        if "lmcache" in ways:
            rows.append(times.row(name(f"{hook}_to_lmcache"), hook, "lmcache", "LMCache's server, from its memory"))
    if "tiering" in ways:
        rows.append(times.row(name("tiering_to_pool"), "tiering", "pool", "vLLM's own pool, with nothing below"))
    for way in ways:
        rows.append(times.row(name(f"{way}_while_storing"), f"{way}.computed", computed, COMPUTED))
    return rows
