"""The library's log lines reach Python."""
from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import Any, Callable

import pytest

import libkvbm

NODE = {"node.listen": "127.0.0.1:0", "host.capacity": "1MiB"}


def until(there: Callable[[], Any], seconds: float = 10) -> bool:
    """Lines come on a thread of their own."""
    end = time.monotonic() + seconds
    while not there() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(there())


def start(**more: Any) -> None:
    with libkvbm.Context(NODE, **more) as context, libkvbm.Manager(context, block_bytes=4096):
        pass


def test_a_listener_gets_level_component_and_text() -> None:
    heard: list[tuple[int, str, str]] = []
    start(log=lambda level, component, text: heard.append((level, component, text)))
    assert until(lambda: [line for line in heard if line[0] == logging.INFO and line[1] == "node"
                          and line[2].startswith("transport ")]), heard


def test_logging_has_it_up_to_the_level_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "libkvbm"]

    with caplog.at_level(logging.WARNING, "libkvbm"):
        start()
    with caplog.at_level(logging.INFO, "libkvbm"):
        start()
        assert until(lambda: any(line.startswith("node: transport ") for line in lines()))
    assert len([line for line in lines() if line.startswith("node: transport ")]) == 1


def test_a_listener_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def broken(level: int, component: str, text: str) -> None:
        raise RuntimeError("no")

    start(log=broken)
    start(log=lambda level, component, text: heard.append(text))
    assert until(lambda: heard)
    assert until(lambda: "a listener of libkvbm's log failed" in caplog.text)


def test_nobody_hears_where_it_is_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    with caplog.at_level(logging.DEBUG, "libkvbm"):
        start(log=False)
        start(log=lambda level, component, text: heard.append(text))  # behind it in the pipe
        assert until(lambda: heard)
    assert not [record for record in caplog.records if record.name == "libkvbm" and "transport" in record.getMessage()]


def test_a_process_ends_while_lines_are_written(tmp_path: Any) -> None:
    """A forked process too, which has the pipe but not the thread that reads it."""
    program = """
import logging, os
import libkvbm
logging.basicConfig(level=logging.INFO)
def start():
    context = libkvbm.Context({"node.listen": "127.0.0.1:0", "host.capacity": "1MiB"})
    return libkvbm.Manager(context, block_bytes=4096)
pid = os.fork()
first = start()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    ran = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, env=dict(os.environ))
    assert ran.returncode == 0, ran.stderr
