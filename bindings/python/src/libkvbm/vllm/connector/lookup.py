"""How much of a request the tiers have."""
from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Optional, Sequence

from ... import Keys, Manager, Match, Namespace


@dataclass(frozen=True)
class Space:
    """A namespace in which a request must be found to be loaded: of one group of layers on one rank. `step` hashes of
    the engine's make a block of `tokens` tokens."""

    manager: Manager
    ns: Namespace
    tokens: int
    step: int


@dataclass
class _Found:
    tokens: int
    hashes: int
    matches: list[Match]

    def release(self) -> None:
        for match in self.matches:
            match.release()


class Finder:
    """Looks requests up in all spaces. The blocks found are held until forget(), so that they are there when they are
    loaded. Other processes and nodes are asked on a thread, and the engine asks again later. Thread: the
    scheduler's."""

    def __init__(self, spaces: Sequence[Space], quick: bool, ask_nodes_ns: int) -> None:
        self._spaces = spaces
        self._whole = math.lcm(*(space.tokens for space in spaces))
        self._grain = math.gcd(*(space.tokens for space in spaces))
        self._ask_nodes_ns = ask_nodes_ns
        self._found: dict[str, _Found] = {}
        self._asked: dict[str, Future[_Found]] = {}
        self._pool = None if quick else ThreadPoolExecutor(2, thread_name_prefix="libkvbm-lookup")

    def tokens(self, request: str, hashes: Sequence[bytes]) -> Optional[int]:
        """Leading tokens that every space has; None: ask again."""
        if self._pool is None:
            return self._take(request, self._look(hashes)).tokens
        known = self._found.get(request)
        if known is not None and known.hashes == len(hashes):
            return known.tokens
        asked = self._asked.get(request)
        if asked is None:
            self._asked[request] = self._pool.submit(self._look, list(hashes))
            return None
        if not asked.done():
            return None
        del self._asked[request]
        return self._take(request, asked.result()).tokens

    def below(self, request: str, first: int, upto: int) -> int:
        """Of tokens [first, upto) that were found, those of which something is not in the host tier yet."""
        found = self._found.get(request)
        if found is None:
            return 0
        slow: set[int] = set()
        for space, match in zip(self._spaces, found.matches):
            begin = first // space.tokens
            for i, item in enumerate(match.items(begin, min(upto // space.tokens, len(match)) - begin)):
                if item.below_bytes:
                    slow.update(range((begin + i) * space.tokens, (begin + i + 1) * space.tokens, self._grain))
        return min(len(slow) * self._grain, upto - first)

    def forget(self, request: str) -> None:
        """Releases the blocks found for a request."""
        found = self._found.pop(request, None)
        if found is not None:
            found.release()
        asked = self._asked.pop(request, None)
        if asked is not None:
            asked.add_done_callback(_release)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for request in [*self._found, *self._asked]:
            self.forget(request)

    def _take(self, request: str, found: _Found) -> _Found:
        self.forget(request)
        self._found[request] = found
        return found

    def _look(self, hashes: Sequence[bytes]) -> _Found:
        found = _Found(0, len(hashes), [])
        tokens: Optional[int] = None
        for space in self._spaces:
            named = hashes[space.step - 1::space.step]
            if not named:
                break
            keys = Keys.from_hashes(space.ns, list(named))
            match = space.manager.lookup(space.ns, keys, ask_nodes_ns=self._ask_nodes_ns)
            found.matches.append(match)
            tokens = match.hits * space.tokens if tokens is None else min(tokens, match.hits * space.tokens)
            if tokens == 0:
                break
        else:
            found.tokens = (tokens or 0) // self._whole * self._whole
        if found.tokens == 0:
            found.release()
        return found


def _release(asked: Future[_Found]) -> None:
    if not asked.cancelled() and asked.exception() is None:
        asked.result().release()
