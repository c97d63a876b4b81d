"""A package without its native parts says so, and what to do."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import libkvbm


@pytest.mark.parametrize("lost", ["_native*.so", "libkvbm.so*"])
def test_a_lost_native_library_is_named_with_the_remedy(lost: str, tmp_path: Path) -> None:
    package = shutil.copytree(Path(libkvbm.__file__).parent, tmp_path / "libkvbm")
    found = list(package.glob(lost))
    if not found:
        pytest.skip(f"this package has no {lost} of its own")
    for file in found:
        file.unlink()
    # Not one that is installed elsewhere.
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"} | {"PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", "import libkvbm"], env=environment, cwd=tmp_path, capture_output=True,
                          text=True, check=False)
    assert said.returncode != 0
    last = said.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: libkvbm for Python lacks its native library") and "install the wheel again" in last
