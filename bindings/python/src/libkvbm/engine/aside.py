"""Circuit breaker: a plug-in that has lost its store is disabled, and the engine computes and keeps serving."""
from __future__ import annotations

import logging
import threading
from typing import Callable, Optional, TypeVar

from ..errors import KvbmError, NoRoomError, PeerError

T = TypeVar("T")


class ConfigurationError(ValueError):
    """Startup is refused: the configuration cannot mean what was intended. The message says what to change."""


class Aside:
    """Runs calls of a plug-in. The first fault of the library is logged in one line and ends its use: from then on
    every call gives its fallback at once. Faults of single blocks, want of room, and an owner or a node that has gone
    are no such thing: the call gives its fallback, and the next is tried. Thread: any."""

    def __init__(self, name: str, log: Optional[logging.Logger] = None, *, all_faults: bool = False) -> None:
        """`all_faults`: faults of the plug-in itself, too. In an engine's scheduler they would end every request."""
        self._all_faults = all_faults
        self._name = name
        self._log = log or logging.getLogger("libkvbm")
        self._lock = threading.Lock()
        self.reason: Optional[str] = None

    @property
    def stepped(self) -> bool:
        return self.reason is not None

    def step(self, reason: str) -> None:
        """Ends the use of the library; only the first reason is logged."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
        self._log.error("%s steps aside, and the engine goes on without it: %s", self._name, reason)

    def call(self, body: Callable[[], T], fallback: T) -> T:
        """body(), or the fallback where it fails, or the library has failed before."""
        if self.reason is not None:
            return fallback
        try:
            return body()
        except (NoRoomError, PeerError):
            return fallback
        except (KvbmError, OSError, MemoryError) as error:
            self.step(str(error) or type(error).__name__)
            return fallback
        except Exception as error:
            if not self._all_faults or isinstance(error, ConfigurationError):
                raise
            self.step(f"{type(error).__name__}: {error}")
            return fallback
