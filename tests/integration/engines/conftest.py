"""Fixtures of the acceptance tests of all engines."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # `from engine import Engine` in every folder

# Every KVBM_ variable is a setting to the library, and these are none.
for name in ("KVBM_PREFIX", "KVBM_ENGINES_VENV"):
    os.environ.pop(name, None)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The directory of a real small model, made at first use."""
    directory = HERE.parents[2] / "build" / "engines" / "smollm2"
    made = subprocess.run([sys.executable, str(HERE / "smollm2.py"), str(directory)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return directory


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers with random weights, for what does not need words."""
    from engine import tiny_model

    return tiny_model(tmp_path_factory.mktemp("tiny"))
