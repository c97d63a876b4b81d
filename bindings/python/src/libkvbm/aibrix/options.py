"""Environment variables, in AIBrix's habit: AIBRIX_KV_CACHE_OL_KVBM_<NAME>.

MODEL          required: path, or name@revision, of the weights, and whatever else their KV depends on (kind of fp8)
HOST_CAPACITY  host memory for blocks, "8GiB"; 256 MiB as libkvbm has it
DISK           directory of a disk tier below host memory
DISK_CAPACITY  hard cap of everything in it; 16GiB
STORES         URLs of stores below the disk, with spaces between: "file:///mnt/shared/kv s3://bucket/prefix"
CONFIG_FILE    TOML file with options of libkvbm
SETTINGS       the same as JSON: {"host.policy": "lru"}
SHARE          1: the processes of this engine, and other engines on this host, share one tier set
TENANT         blocks of different tenants are never found by one another
SECRET_FILE    file of 32 bytes or more, of which the first 32 separate this pool's keys from others'
IDENTITY       aibrix: blocks are AIBrix's own; tokens: they are named by their tokens and found by KvbmConnector too
WEAK_HASHES    1: also AIBrix's FarmHash names blocks, of which two prompts with one name are easily found
WEIGH          1, unless set to 0: what would take longer to load than to compute is answered as not found
USE_ZERO_COPY  1: AIBrix writes into and reads from libkvbm's own memory; its L1 cache is not used then
"""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Mapping, Optional

from ..engine import Configuration, ConfigurationError

PREFIX = "AIBRIX_KV_CACHE_OL_KVBM_"
_PLAIN = ("CONFIG_FILE", "DISK", "DISK_CAPACITY", "SECRET_FILE", "TENANT")
_NAMES = _PLAIN + ("HOST_CAPACITY", "IDENTITY", "MODEL", "SETTINGS", "SHARE", "STORES", "USE_ZERO_COPY", "WEAK_HASHES",
                   "WEIGH")


@dataclass(frozen=True)
class Options:
    """The options in the environment."""

    model: str
    configuration: Configuration
    zero_copy: bool = False
    tokens: bool = False
    weigh: bool = True

    @classmethod
    def from_envs(cls, environment: Optional[Mapping[str, str]] = None) -> Options:
        given = {name[len(PREFIX):]: value.strip()
                 for name, value in (os.environ if environment is None else environment).items()
                 if name.startswith(PREFIX)}
        for name in given:
            if name not in _NAMES:
                raise ConfigurationError(f"there is no variable {PREFIX}{name}: "
                                         f"{PREFIX} is followed by {', '.join(sorted(_NAMES))}")
        given = {name: value for name, value in given.items() if value}
        if "MODEL" not in given:
            raise ConfigurationError(
                f"{PREFIX}MODEL is not set: AIBrix does not tell its backends which model it serves, and KV of another "
                "model must never be found; set it to the name and revision of the weights")
        options: dict[str, object] = {name.lower(): given[name] for name in _PLAIN if name in given}
        settings = _settings(given.get("SETTINGS", "{}"))
        if "HOST_CAPACITY" in given:
            settings["host.capacity"] = given["HOST_CAPACITY"]
        options["settings"], options["stores"] = settings, given.get("STORES", "").split()
        options["share"], options["weak_hashes"] = _switch(given, "SHARE"), _switch(given, "WEAK_HASHES")
        identity = given.get("IDENTITY", "aibrix").lower()
        if identity not in ("aibrix", "tokens"):
            raise ConfigurationError(f"{PREFIX}IDENTITY is {identity!r}: aibrix or tokens")
        return cls(given["MODEL"], Configuration.of(options), _switch(given, "USE_ZERO_COPY"), identity == "tokens",
                   _switch(given, "WEIGH", "1"))


def _settings(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{PREFIX}SETTINGS is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f'{PREFIX}SETTINGS is {text}: a table is expected, as {{"host.policy": "lru"}}')
    return value


def _switch(given: Mapping[str, str], name: str, default: str = "0") -> bool:
    value = given.get(name, default).lower()
    if value not in ("0", "1", "false", "true"):
        raise ConfigurationError(f"{PREFIX}{name} is {value!r}: 0 or 1")
    return value in ("1", "true")
