"""Time to the first token by where the KV is: nowhere, in host memory, in the memory of another process, on disk. Of
prompts of several lengths, and of the turns of a conversation."""
from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from first_token import COMPUTED, Times, prompt_of
from fleet import ADDRESS, PLAIN, Fleet, Member
from hooks import connector
from rows import Row, median_ms, say

HOST = "512MiB"
# In this order: what a peer reads is in the memory of the keeper, which is emptied before its disk is read.
PLACES = ("host", "peer", "peer_tcp", "disk")
OWN = "vllm"  # vLLM's own cache, of which nothing has been evicted: as good as it gets
TURN = 330  # tokens that a turn adds


@dataclass
class Set:
    """An engine that has the KV, on its disk too, and others that ask it for it."""

    alone: Member
    keeper: Member
    peers: dict[str, Member]
    places: Sequence[str]

    @classmethod
    def start(cls, fleet: Fleet, place: Path, places: Sequence[str]) -> Set:
        keeper = fleet.start("keeper", connector(HOST, {"node.listen": "127.0.0.1:0"}, disk=str(place / "disk"),
                                                 disk_capacity="8GiB"))
        address = str(keeper.engine.run(ADDRESS))
        peers = {name: fleet.start(name, connector(HOST, {"node.peers": address, "node.local": local}))
                 for name, local in (("peer", "auto"), ("peer_tcp", "off")) if name in places}
        return cls(fleet.members[PLAIN], keeper, peers, places)

    def prepare(self, place: str) -> Member:
        """The engine that is asked, with the KV where it is to be, and nowhere above."""
        member = self.peers.get(place, self.keeper)
        if place != "host":
            member.evict()
        member.engine.reset()
        return member


def lengths(found: Set, sizes: Sequence[int], rounds: int) -> list[Row]:
    times, chosen = Times(), random.Random(2)
    for number in range(rounds + 1):  # the first is not counted: buffers are made, nodes meet
        for size in sizes:
            prompt, keep = prompt_of(chosen, size), number > 0
            found.alone.engine.reset()
            times.take(f"{size}.computed", found.alone, prompt, keep=keep)
            found.keeper.ask(prompt)
            found.keeper.settle()
            for place in found.places:
                times.take(f"{size}.{place}", found.prepare(place), prompt, size, keep=keep)
        say(f"lengths and places: round {number} of {rounds}")
    return _rows("places", times, sizes, found.places)


def conversation(found: Set, turns: int, rounds: int) -> list[Row]:
    """A turn's prompt is all before it and TURN tokens, which are always computed. A conversation of its own for every
    place, turn by turn."""
    times, chosen = Times(), random.Random(3)
    for number in range(rounds):
        said: dict[str, list[int]] = {place: [] for place in ("computed", OWN, *found.places)}
        for turn in range(1, turns + 1):
            for place in said:
                before, said[place] = said[place], said[place] + prompt_of(chosen, TURN)
                times.take(f"{turn}.{place}", _ready(found, place, before), said[place], len(before))
        say(f"conversation: {number + 1} of {rounds}")
    return _rows("turn", times, range(1, turns + 1), (OWN, *found.places))


def _ready(found: Set, place: str, before: Sequence[int]) -> Member:
    """Returns the engine to measure, with the KV of `before` in the given place."""
    if place in ("computed", OWN):
        found.alone.engine.reset()
        if before and place == OWN:
            found.alone.ask(before)
        return found.alone
    if before and place in found.peers:
        found.keeper.ask(before)
    found.keeper.settle()
    return found.prepare(place)


def _rows(what: str, times: Times, kinds: Sequence[int], places: Sequence[str]) -> list[Row]:
    rows = []
    for kind in kinds:
        computed = f"{kind}.computed"
        rows.append(Row(f"engines.{what}.{kind}.computed", median_ms(times.seconds[computed]), "ms"))
        rows += [times.row(f"engines.{what}.{kind}.{place}", f"{kind}.{place}", computed, COMPUTED)
                 for place in places]
    return rows
