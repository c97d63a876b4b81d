"""Errors of libkvbm as exceptions: one class for each band of statuses, because the band names the remedy.

A cache miss is a count, not an error. Bad arguments that do not reach the library (a buffer of the wrong type or a
read-only one) raise TypeError or BufferError, as usual in Python. Lengths that do not agree raise CallerError, which is
a ValueError.
"""
from __future__ import annotations

from typing import Optional

from . import _native as raw


class KvbmError(Exception):
    """A call that libkvbm refused or could not finish.

    Attributes: status (a number, KVBM_ERR_* of kvbm.h), name ("KVBM_ERR_NO_ROOM"), message (what was refused, why, and
    what to do), item_status (of a batch: a memoryview of one status an item, or None).
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.name: str = raw.kvbm_status_name(status)
        self.message = message
        self.item_status: Optional[memoryview] = None
        super().__init__(status, message)

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class CallerError(KvbmError, ValueError):
    """-100 to -199: the call is wrong; fix the caller."""


class ClosedError(CallerError):
    """The object was closed, or its hold has ended (KVBM_ERR_STALE)."""


class ForkedError(CallerError):
    """An object of the parent was used in a forked child (KVBM_ERR_FORKED); make a Context there."""


class NoRoomError(KvbmError):
    """-200 to -299: no room; release, evict, wait or raise a limit."""


class PeerError(KvbmError):
    """-300 to -399: time, peers and owners; retry, or go elsewhere."""


class DeadlineError(PeerError, TimeoutError):
    """The time was up (KVBM_ERR_DEADLINE)."""


class MissError(KvbmError):
    """-400 to -499: not here or not trustworthy; compute it."""


class UnavailableError(KvbmError):
    """-500 to -599: not available here."""


class InternalError(KvbmError):
    """-600 to -699: the library's or the system's fault."""


_BANDS: dict[int, type[KvbmError]] = {
    1: CallerError, 2: NoRoomError, 3: PeerError, 4: MissError, 5: UnavailableError, 6: InternalError,
}
_SPECIAL: dict[int, type[KvbmError]] = {
    raw.KVBM_ERR_STALE: ClosedError, raw.KVBM_ERR_FORKED: ForkedError, raw.KVBM_ERR_DEADLINE: DeadlineError,
}


def error_of(status: int, message: str = "") -> KvbmError:
    """The exception for a status below zero."""
    kind = _SPECIAL.get(status) or _BANDS.get(-status // 100, InternalError)
    return kind(status, message or raw.kvbm_status_text(status))


def invalid(message: str) -> KvbmError:
    """For arguments that do not agree with each other, which the library cannot see."""
    return error_of(raw.KVBM_ERR_INVALID, message)


raw.kvbm_set_error_factory(error_of)
