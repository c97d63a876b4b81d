"""Runs the scenarios of bindings/conformance: its README says what every step kind means. Holds are single numbers
here, and scenarios use ended ones on purpose, so calls on blocks go to the raw layer."""
from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import time
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import fake_gpu
import pytest

import libkvbm
from libkvbm import _native as raw
from libkvbm import _raw
from libkvbm.geometry import part_memory
from libkvbm.memory import statuses as status_memory

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "bindings" / "conformance"
CONSTANTS: dict[str, Any] = json.loads((FOLDER / "constants.json").read_text())
if "constants" in CONSTANTS:
    CONSTANTS = CONSTANTS["constants"]
BANDS = [libkvbm.CallerError, libkvbm.NoRoomError, libkvbm.PeerError, libkvbm.MissError, libkvbm.UnavailableError,
         libkvbm.InternalError]

Step = dict[str, Any]
KINDS: dict[str, Callable[[Runner, Step], dict[str, Any]]] = {}


class Failure(AssertionError):
    pass


def kind(name: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        KINDS[name] = function
        return function

    return add


def pattern(seed: int, n: int) -> bytes:
    out = bytearray(n)
    base = seed * 1000003
    for j in range(n):
        x = (base + j) & 0xFFFFFFFF
        x ^= x >> 15
        x = x * 2246822519 & 0xFFFFFFFF
        out[j] = (x ^ x >> 13) & 255
    return bytes(out)


class Arguments(dict[str, Any]):
    """The arguments of a step. Remembers which were read: an unknown argument must fail."""

    def __init__(self, items: Any) -> None:
        super().__init__((name, value) for name, value in items if value is not None)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def left(self) -> list[str]:
        return sorted(set(self) - self.seen)


class Runner:
    def __init__(self, tmp: str) -> None:
        self.variables: dict[str, Any] = {"tmp": tmp}
        self.objects: list[Any] = []
        self.patterns: dict[tuple[int, int], bytes] = {}

    def pattern(self, seed: int, n: int) -> bytes:
        if (seed, n) not in self.patterns:
            self.patterns[seed, n] = pattern(seed, n)
        return self.patterns[seed, n]

    @cached_property
    def fake(self) -> fake_gpu.Fake:
        """The engine's side of the fake CUDA driver, with two devices."""
        fake = fake_gpu.Fake()
        fake.apply("devices=2")
        return fake

    def run(self, scenario: dict[str, Any]) -> None:
        if unknown := set(scenario) - {"name", "purpose", "needs", "steps"}:
            raise Failure(f"a scenario has no {unknown}")
        if "needs" in scenario:
            if scenario["needs"] != "cuda_driver":
                raise Failure(f"no such need: {scenario['needs']}")
            if not fake_gpu.DRIVER.exists():
                pytest.skip("the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)")
            self.variables["driver"] = str(fake_gpu.DRIVER)
        try:
            for number, step in enumerate(scenario["steps"], 1):
                try:
                    self.step(step)
                except Exception as error:
                    text = f"step {number} ({json.dumps(step)[:300]})"
                    raise Failure(f"{text}: {type(error).__name__}: {error}") from error
        finally:
            for item in reversed(self.objects):
                with contextlib.suppress(libkvbm.KvbmError):
                    item.release() if hasattr(item, "release") else item.close()
            self.objects.clear()
            self.variables.clear()

    def step(self, step: Step) -> None:
        end = time.monotonic_ns() + step.get("within_ns", 0)
        while True:
            try:
                return self.once(step)
            except (Failure, libkvbm.KvbmError):
                if time.monotonic_ns() >= end:
                    raise
            time.sleep(0.005)

    def once(self, step: Step) -> None:
        arguments = Arguments((name, self.value(item)) for name, item in step.items()
                              if name not in ("do", "as", "expect", "error", "message", "range", "within_ns", "why"))
        if step["do"] not in KINDS:
            raise Failure("unknown step kind")
        if "range" in step:
            self.refused_number(step, arguments)
            return
        if "error" not in step:
            results = KINDS[step["do"]](self, arguments)
            if arguments.left():
                raise Failure(f"unknown arguments {arguments.left()}")
            for name, item in results.items():
                if hasattr(item, "__exit__") and not isinstance(item, (memoryview, mmap.mmap)):
                    self.objects.append(item)
            self.check(results, step)
            return
        try:
            KINDS[step["do"]](self, arguments)
        except libkvbm.KvbmError as error:
            number = CONSTANTS[step["error"]]
            if error.name != step["error"] or error.status != number:
                raise Failure(f"failed with {error}, not {step['error']}") from error
            if not isinstance(error, BANDS[-number // 100 - 1]):
                raise Failure(f"{type(error)} is not of the band")
            if step.get("message", "") not in error.message:
                raise Failure(f"the message is: {error.message}")
            return
        raise Failure(f"did not fail with {step['error']}")

    def refused_number(self, step: Step, arguments: Arguments) -> None:
        if isinstance(given := arguments[step["range"]], str):
            arguments[step["range"]] = int(given)
        try:
            results = KINDS[step["do"]](self, arguments)
        except OverflowError:
            return
        raise Failure(f"took a number that cannot be, and gave {results}")

    def check(self, results: dict[str, Any], step: Step) -> None:
        status = results.get("status", 0)
        if status not in (0, 1) or (status == 1 and "status" not in step.get("expect", {})):
            raise Failure(f"the status is {status}")
        for name, wanted in step.get("expect", {}).items():
            if name not in results:
                raise Failure(f"there is no result {name}")
            if not matches(results[name], self.value(wanted)):
                raise Failure(f"{name} is {results[name]!r}, expected {self.value(wanted)!r}")
        for name, variable in step.get("as", {}).items():
            if name not in results:
                raise Failure(f"there is no result {name}")
            self.variables[variable] = results[name]

    # ---- values

    def value(self, item: Any) -> Any:
        if isinstance(item, dict):
            return {name: self.value(inner) for name, inner in item.items()}
        if isinstance(item, list):
            out = []
            for inner in item:
                if isinstance(inner, str) and re.fullmatch(r"\$\w+\[\d+:\d+\]", inner):
                    out.extend(self.value(inner))
                else:
                    out.append(self.value(inner))
            return out
        if not isinstance(item, str):
            return item
        if found := re.fullmatch(r"\$(\w+)(?:\[(\d+)(?::(\d+))?\])?", item):
            value = self.variables[found[1]]
            if found[3] is not None:
                return value[int(found[2]):int(found[3])]
            return value if found[2] is None else value[int(found[2])]
        if item.startswith("KVBM_"):
            return CONSTANTS[item]
        return re.sub(r"\$\{(\w+)\}", lambda name: str(self.variables[name[1]]), item)


def matches(result: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if set(wanted) & {"min", "max", "length", "contains", "not", "any_order"}:
            return all(matcher(result, name, value) for name, value in wanted.items())
        return isinstance(result, dict) and all(n in result and matches(result[n], v) for n, v in wanted.items())
    if isinstance(wanted, list):
        return (isinstance(result, list) and len(result) == len(wanted)
                and all(matches(r, w) for r, w in zip(result, wanted)))
    if isinstance(result, int) and not isinstance(result, bool) and type(wanted) is int:
        return int(result) == wanted  # a status, an operation, a tier: numbers that print as names
    if isinstance(result, bool) or type(result) is not type(wanted):
        return result is None and wanted is None
    return bool(result == wanted)


def matcher(result: Any, name: str, value: Any) -> bool:
    if name == "min":
        return isinstance(result, int) and result >= value
    if name == "max":
        return isinstance(result, int) and result <= value
    if name == "length":
        return isinstance(result, (list, str)) and len(result) == value
    if name == "not":
        return not matches(result, value)
    if name == "contains":
        if isinstance(result, str):
            return value in result
        return isinstance(result, list) and any(matches(item, value) for item in result)
    if name != "any_order":
        raise Failure(f"unknown matcher {name}")
    left = list(result)
    for wanted in value:
        found = next((item for item in left if matches(item, wanted)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def number(value: Any) -> int:
    return int(value)


def keys_of(values: list[str]) -> libkvbm.Keys:
    return libkvbm.Keys([bytes.fromhex(value) for value in values])


def hex_keys(keys: libkvbm.Keys) -> list[str]:
    return [key.hex() for key in keys]


def part_of(value: Optional[dict[str, Any]]) -> Optional[libkvbm.Part]:
    if value is None:
        return None
    return libkvbm.Part(value.get("component", 0), libkvbm.Shard(**value.get("shard", {})))


def ids_memory(holds: list[int]) -> raw.Memory:
    return raw.Memory(b"".join(hold.to_bytes(8, "little") for hold in holds), format="Q")


def holds_of(memory: raw.Memory) -> list[int]:
    return list(memoryview(memory).tolist())


def tokens_of(value: dict[str, int]) -> list[int]:
    step = value.get("step", 1)
    return [(value["first"] + i * step) & 0xFFFFFFFF for i in range(value["count"])]


def options_of(a: Step, *names: str, **renamed: Callable[[Any], Any]) -> dict[str, Any]:
    """The arguments that were given, as keyword arguments."""
    out = {name: a[name] for name in names if name in a}
    out.update({name: convert(a[name]) for name, convert in renamed.items() if name in a})
    return out


def rows_of(memory: memoryview, a: Step) -> Iterator[tuple[int, memoryview]]:
    starts = [a.get("offset", 0)]
    for count, stride in a.get("dims", []):
        starts = [start + i * stride for start in starts for i in range(count)]
    for row, start in enumerate(starts):
        yield row, memory[start:start + a["bytes"]]


