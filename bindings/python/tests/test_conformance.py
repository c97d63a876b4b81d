"""The scenarios that all languages run, and the constants that they all have."""
from __future__ import annotations

import json
from pathlib import Path

import conformance
import conformance_steps  # noqa: F401  (adds the step kinds)
import pytest

from libkvbm import _native as raw

SCENARIOS = sorted((conformance.FOLDER / "scenarios").glob("*.json"))


def test_there_are_scenarios() -> None:
    assert SCENARIOS


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path) -> None:
    conformance.Runner(str(tmp_path)).run(json.loads(path.read_text()))


@pytest.mark.parametrize("name", sorted(conformance.CONSTANTS))
def test_constant_is_the_headers(name: str) -> None:
    assert str(getattr(raw, name)) == str(conformance.CONSTANTS[name])


def test_an_unknown_step_kind_fails(tmp_path: Path) -> None:
    with pytest.raises(conformance.Failure, match="unknown step kind"):
        conformance.Runner(str(tmp_path)).run({"steps": [{"do": "nothing.known"}]})


def test_an_unknown_argument_fails(tmp_path: Path) -> None:
    with pytest.raises(conformance.Failure, match="unknown arguments"):
        conformance.Runner(str(tmp_path)).run({"steps": [{"do": "version", "colour": "red"}]})


def test_an_expectation_that_does_not_hold_fails(tmp_path: Path) -> None:
    with pytest.raises(conformance.Failure, match="expected"):
        conformance.Runner(str(tmp_path)).run({"steps": [{"do": "version", "expect": {"number": 1}}]})


def test_every_step_kind_of_the_schema_is_known() -> None:
    schema = json.loads((conformance.FOLDER / "schema.json").read_text())
    assert set(schema["$defs"]["step"]) <= set(conformance.KINDS)
