"""libkvbm's statuses as AIBrix's."""
from __future__ import annotations

from typing import Any, Optional

from aibrix_kvcache.status import Status, StatusCodes

from .. import _native as raw
from ..constants import Status as Code

# Where a single status means something else than its band. The bands name the remedy (kvbm.h).
_SINGLE: dict[int, Any] = {
    Code.IN_USE: StatusCodes.DENIED,
    Code.QUOTA: StatusCodes.DENIED,
    Code.DEADLINE: StatusCodes.TIMEOUT,
    Code.CANCELLED: StatusCodes.CANCELLED,
    Code.CLOSED: StatusCodes.CANCELLED,
}
_BANDS = {
    1: StatusCodes.INVALID,  # the call is wrong
    2: StatusCodes.OUT_OF_MEMORY,  # no room
    3: StatusCodes.ERROR,  # a peer or an owner has gone
    4: StatusCodes.NOT_FOUND,  # not here, or not trustworthy: to be computed
    5: StatusCodes.DENIED,  # not available here, however often it is asked for
    6: StatusCodes.ERROR,  # the library's or the system's fault
}


def code_of(status: int) -> Any:
    """AIBrix's code for a status of libkvbm; everything that is not below zero was done."""
    if status >= 0:
        return StatusCodes.OK
    return _SINGLE.get(status, _BANDS.get(-status // 100, StatusCodes.ERROR))


class Failure(Status):  # type: ignore[misc]
    """A status that is not OK. L2Cache 0.8.0 calls result() of the first failure of an mput, as if it were a task.
    Without that method, the AttributeError would reach the engine and the block's memory would leak."""

    def result(self) -> Failure:
        return self


def failure(code: StatusCodes, message: Optional[str] = None) -> Any:
    return Failure(code, message)


def status_of(status: int, message: str = "") -> Any:
    """A whole Status. The text of a miss is omitted, because misses are frequent and normal."""
    code = code_of(status)
    if code is StatusCodes.OK:
        return Status.ok()
    if code is StatusCodes.NOT_FOUND:
        return Failure(code)
    return Failure(code, message or f"{raw.kvbm_status_name(status)}: {raw.kvbm_status_text(status)}")
