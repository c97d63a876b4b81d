"""Processes that are always ended."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


class Child:
    """child.py with a job."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.process = subprocess.Popen([sys.executable, str(HERE / "child.py"), json.dumps(job)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended without a result"
        return json.loads(line)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """start(do, spec=..., seed=..., group=..., **given) runs a process."""
    children: list[Child] = []

    def begin(do: list[Any], spec: Any = None, seed: str = "weights", group: Any = None, **given: object) -> Child:
        children.append(Child({"do": do, "spec": spec or {}, "seed": seed, "group": group, "given": given}))
        return children[-1]

    yield begin
    for child in children:
        child.kill()


@pytest.fixture(scope="session")
def once() -> Callable[..., Any]:
    """The results of a process that ends."""
    def run(do: list[Any], **given: object) -> Any:
        child = Child({"do": do, "given": given})
        try:
            result = child.read()
            assert child.process.wait(120) == 0
            return result
        finally:
            child.kill()

    return run
