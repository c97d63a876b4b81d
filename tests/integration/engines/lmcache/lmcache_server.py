"""LMCache's multi-process server in a process of its own, for the acceptance tests: started with L2 adapters, asked
over HTTP what it has, and always ended."""
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

ENVIRONMENT = {"LMCACHE_DISABLE_BANNER": "1", "LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1",
               "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}


def plugin(**params: object) -> dict[str, object]:
    """libkvbm as an L2 adapter."""
    return {"type": "plugin", "module_path": "libkvbm.lmcache", "class_name": "KvbmL2Adapter", "adapter_params": params}


def native(**params: object) -> dict[str, object]:
    return {"type": "native_plugin", "module_path": "libkvbm.lmcache", "class_name": "KvbmClient",
            "adapter_params": params}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """`l1_gib` is LMCache's own memory, which is emptied with clear(): then only L2 has anything."""

    def __init__(self, adapters: list[dict[str, object]], log: Path, *, l1_gib: float = 0.25, chunk: int = 64,
                 start_s: float = 120) -> None:
        self.port, self.http, self.log = free_port(), free_port(), log
        command = [str(Path(sys.executable).parent / "lmcache"), "server", "--host", "127.0.0.1", "--port",
                   str(self.port), "--http-port", str(self.http), "--l1-size-gb", str(l1_gib), "--eviction-policy",
                   "LRU", "--chunk-size", str(chunk), "--supported-transfer-mode", "engine_driven"]
        for adapter in adapters:
            command += ["--l2-adapter", json.dumps(adapter)]
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | ENVIRONMENT,
                                            start_new_session=True)
        try:
            self._wait(start_s)
        except BaseException:
            self.stop()
            raise

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                if self.status()["is_healthy"]:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"LMCache's server did not start:\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)

    def status(self) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/status", timeout=10) as answer:
            return json.load(answer)

    def adapter(self) -> Any:
        """Returns the status of the first L2 adapter."""
        return self.status()["storage_manager"]["l2_adapters"][0]

    def clear(self) -> None:
        """LMCache forgets its own memory."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}/cache/clear", method="POST")
        urllib.request.urlopen(request, timeout=30).read()

    def connector(self) -> dict[str, object]:
        """vLLM's kv_transfer_config for this server."""
        return {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": {
            "lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.port}}

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        """As an operator does; what was stored is brought to the disks."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop()
