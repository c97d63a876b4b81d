"""Every constant of kvbm.h has its name here, and nothing else has one."""
from __future__ import annotations

from enum import IntEnum

import conformance
from libkvbm import constants

# How kvbm.h begins the names of each enumeration's values.
BEGINNINGS = {"ERR_": constants.Status, "OP_": constants.Op, "EVENT_": constants.EventKind,
              "ELEMENT_": constants.Element, "COMPONENT_": constants.ComponentKind, "ADMIT_": constants.Admit,
              "QUOTA_": constants.Quota, "DUPLICATE_": constants.Duplicate, "PRIORITY_": constants.Priority,
              "LOOKUP_": constants.Lookup, "CODEC_": constants.CodecMode,
              "SHARE_": constants.ShareRole, "FORM_": constants.Form, "MEMORY_": constants.MemoryKind,
              "WAIT_LAYERS_": constants.WaitLayers}
BY_THEMSELVES = {"OK": constants.Status.OK, "PARTIAL": constants.Status.PARTIAL, "NO_TIER": constants.NO_TIER,
                 "NO_BLOCK": constants.NO_BLOCK}
# The levels of the log callback, which is for C, and flags, which are arguments of their own here.
NOT_HERE = {"LOG_OFF", "LOG_ERROR", "LOG_WARNING", "LOG_INFO", "LOG_DEBUG", "MANAGER_SHARE",
            "CODEC_ALLOW_LOSSY"}


def test_the_constants_are_those_of_the_header_by_name_and_number() -> None:
    header = {name.removeprefix("KVBM_"): int(value) for name, value in conformance.CONSTANTS.items()}
    here = {name: int(value) for name, value in BY_THEMSELVES.items()}
    for beginning, kind in BEGINNINGS.items():
        for name, value in kind.__members__.items():
            if name not in ("OK", "PARTIAL"):
                here[beginning + name] = int(value)
    assert here == {name: value for name, value in header.items() if name not in NOT_HERE}
    assert NOT_HERE <= header.keys()


def test_no_enumeration_is_left_out() -> None:
    kinds = {kind for kind in vars(constants).values() if isinstance(kind, type) and issubclass(kind, IntEnum)}
    assert kinds - {IntEnum, constants._Named} == set(BEGINNINGS.values())
