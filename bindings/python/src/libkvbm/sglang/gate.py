"""Lets calls in until it is closed, and closes when they are out."""
from __future__ import annotations

import threading


class Gate:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self.closed = False

    def enter(self) -> bool:
        with self._changed:
            if self.closed:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Waits for those inside; they are bounded by their own deadlines."""
        with self._changed:
            self.closed = True
            self._changed.wait_for(lambda: self._inside == 0)
