"""Passes the library's log lines to Python's logging."""
from __future__ import annotations

import logging
import os
import threading
from typing import Callable, Optional

LogLine = Callable[[int, str, str], object]
"""Called with a level of `logging`, the part of the library that says it, and what it says."""

_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
_PIPE_BYTES = 64 << 10

_log = logging.getLogger("libkvbm")
_lock = threading.Lock()
# Of listener 0, logging, nothing is kept. The others stay: a manager may outlive the context that it was made with.
_listeners: list[LogLine] = []
_descriptor = -1


def listen(listener: Optional[LogLine]) -> tuple[int, int, int]:
    """The pipe, a number in it, and a level of kvbm.h's, for a context that this listens to; None: logging does."""
    global _descriptor
    with _lock:
        if _descriptor < 0:
            _descriptor = _start()
        if listener is None:
            return _descriptor, 0, _level(_log.getEffectiveLevel())
        _listeners.append(listener)
        return _descriptor, len(_listeners), _level(logging.INFO)


def _level(level: int) -> int:
    return max((ours for ours, theirs in _LEVELS.items() if theirs >= level), default=1)


def _start() -> int:
    reads, writes = os.pipe2(os.O_CLOEXEC)
    # A library thread never waits for a reader. The pipe is never closed, because the last writer is unknown.
    os.set_blocking(writes, False)
    threading.Thread(target=_run, args=(reads,), name="kvbm-log", daemon=True).start()
    return writes


def _run(reads: int) -> None:
    rest = b""
    while data := os.read(reads, _PIPE_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            try:
                _say(line.decode(errors="replace"))
            except Exception:  # a listener's own: the others want to hear the next line
                _log.exception("a listener of libkvbm's log failed")


def _say(line: str) -> None:
    listener, level, component, text = line.split(" ", 3)
    number = int(listener)
    if number == 0:
        _log.log(_LEVELS.get(int(level), logging.WARNING), "%s: %s", component, text)
    else:
        _listeners[number - 1](_LEVELS.get(int(level), logging.WARNING), component, text)


def _forked() -> None:
    """A child has the pipe, and not the thread."""
    global _descriptor, _lock
    _descriptor, _lock = -1, threading.Lock()


os.register_at_fork(after_in_child=_forked)
