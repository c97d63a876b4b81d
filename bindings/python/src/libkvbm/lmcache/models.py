"""Which weights the models of LMCache's keys have: it tells their names alone."""
from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, TimeoutError
from typing import Optional

from ..engine import ConfigurationError
from ..engine.weights import weights_of

_log = logging.getLogger("libkvbm")
# So long the first question about a model waits for what is known at once. What is read meanwhile is not there yet.
_WAIT_S = 1.0
_MOST_MODELS = 1024


class Models:
    """Thread: any."""

    def __init__(self, revision: Optional[str]) -> None:
        """`revision` is what the operator says of weights whose files are not on this machine."""
        self._revision = revision
        self._lock = threading.Lock()
        self._known: dict[str, Future[Optional[str]]] = {}

    def of(self, name: str) -> Optional[str]:
        """The model as an identity has it; None: it is being read, or nothing tells which it is. Said once in the log."""
        with self._lock:
            found = self._known.get(name)
            first = found is None
            if found is None:
                if len(self._known) >= _MOST_MODELS:
                    return None
                found = self._known[name] = Future()
        if first:
            threading.Thread(target=self._read, args=(name, found), name="libkvbm-weights", daemon=True).start()
        try:
            return found.result(_WAIT_S if first else 0)
        except TimeoutError:
            return None

    def _read(self, name: str, told: Future[Optional[str]]) -> None:
        try:
            told.set_result(weights_of(name, told=self._revision, log=_log))
        except Exception as error:  # on this thread nobody else would see it
            _log.error("libkvbm keeps nothing of the model %r: %s", name, error if isinstance(error, ConfigurationError)
                       else f"{type(error).__name__}: {error}")
            told.set_result(None)
