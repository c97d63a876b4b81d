"""The name of a namespace from the facts that make KV of two engines comparable."""
from __future__ import annotations

import builtins
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Optional

from ..geometry import Geometry
from ..manager import Manager
from ..namespace import Namespace


@dataclass(frozen=True)
class Identity:
    """Everything that a block's bytes depend on beside its tokens. Two engines find each other's blocks exactly if
    all of it is equal: another model, revision, element type, layout, block size or rank is a clean miss.

    model     name or path of the weights, and their revision
    element   element type of the cache as the engine names it ("bfloat16", "fp8_e4m3")
    layout    how a block's bytes are ordered, in words that say it whole; also the engine where its order is its own
    tokens    tokens of a block
    bytes     of a block, on this rank
    rank, ranks   this worker's part of a tensor-, pipeline- or context-parallel group; 0 of 1 where all have the same
    hashing   what the engine's hashes are made with: equal hashes of different schemes are different blocks
    """

    model: str
    element: str
    layout: str
    tokens: int
    bytes: int
    rank: int = 0
    ranks: int = 1
    hashing: str = ""

    def text(self) -> str:
        """The namespace's model: readable at its front, and whole in its hash."""
        facts = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return f"{self.model} {self.element} {self.rank}/{self.ranks} {hashlib.sha256(facts.encode()).hexdigest()}"

    def namespace(self, manager: Manager, *, tenant: Optional[str] = None, adapter: Optional[str] = None,
                  secret: Optional[builtins.bytes] = None, geometry: Optional[Geometry] = None) -> Namespace:
        return Namespace(manager, self.text(), tenant=tenant, adapter=adapter, secret=secret, geometry=geometry)
