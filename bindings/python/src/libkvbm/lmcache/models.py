"""Which weights the models of LMCache's keys have: it tells their names alone."""
from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, TimeoutError
from typing import Optional

from ..engine import ConfigurationError
from ..engine.weights import weights_of

_log = logging.getLogger("libkvbm")
# Time that the first requests for a model wait for its files. Objects of larger models are misses until they are read.
_WAIT_S = 1.0
_MOST_MODELS = 1024


class Models:
    """Thread: any."""

    def __init__(self, revision: Optional[str]) -> None:
        """`revision` identifies weights without files on this machine."""
        self._revision = revision
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Future[Optional[str]], float]] = {}

    def of(self, name: str) -> Optional[str]:
        """The model as an identity has it; None: it is being read, or nothing tells which it is. Said once in the log."""
        with self._lock:
            if name not in self._known:
                if len(self._known) >= _MOST_MODELS:
                    return None
                told: Future[Optional[str]] = Future()
                self._known[name] = told, time.monotonic() + _WAIT_S
                threading.Thread(target=self._read, args=(name, told), name="libkvbm-weights", daemon=True).start()
            found, until = self._known[name]
        try:
            return found.result(max(until - time.monotonic(), 0))
        except TimeoutError:
            return None

    def _read(self, name: str, told: Future[Optional[str]]) -> None:
        try:
            told.set_result(weights_of(name, told=self._revision, log=_log))
        except Exception as error:  # an exception of this thread would be lost
            _log.error("libkvbm keeps nothing of the model %r: %s", name, error if isinstance(error, ConfigurationError)
                       else f"{type(error).__name__}: {error}")
            told.set_result(None)
