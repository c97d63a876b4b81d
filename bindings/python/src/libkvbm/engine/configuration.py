"""What an engine's configuration says of libkvbm, and the manager that it makes."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Mapping, Optional

from ..constants import Admit
from ..context import Context, SettingValue
from ..errors import KvbmError
from ..manager import Manager, Tier
from .aside import ConfigurationError

_SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 10**3, "MB": 10**6,
          "GB": 10**9, "TB": 10**12}
_KEYS = ("config_file", "disk", "disk_capacity", "revision", "secret_file", "settings", "share", "tenant", "weak_hashes")


def size_of(text: object, what: str) -> int:
    """Bytes of "8GiB", "500 MB" or a plain number."""
    words = str(text).strip()
    number = words.rstrip("BKMGTikmgt ")
    unit = words[len(number):].strip()
    try:
        size = float(number) * _SIZES[unit]
    except (KeyError, ValueError):
        raise ConfigurationError(f"{what} is {text!r}: a size is a number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB"
                                 ) from None
    if not 0 < size < 1 << 63:
        raise ConfigurationError(f"{what} is {text!r}: no possible size")
    return int(size)


@dataclass(frozen=True)
class Configuration:
    """The part of an engine's configuration that is libkvbm's. Keys:

    settings       options of docs/configuration.md by their names: {"host.capacity": "8GiB"}
    config_file    a TOML file with such options; tiers of several disks are given there
    disk           directory of a disk tier below host memory
    disk_capacity  hard cap of everything in it; 16GiB
    share          true: the processes of this engine, and other engines on this host, share one tier set
    tenant         blocks of different tenants are never found by one another
    secret_file    file of 32 bytes or more, of which the first 32 separate this pool's keys from others'
    revision       which weights the engine has, where libkvbm cannot read their files; another text for other weights
    weak_hashes    true: also the names of an engine are taken of which two prompts with one are easily found
    """

    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    config_file: Optional[str] = None
    disk: Optional[str] = None
    disk_capacity: int = 16 << 30
    share: bool = False
    tenant: Optional[str] = None
    secret: Optional[bytes] = None
    revision: Optional[str] = None
    weak_hashes: bool = False

    @classmethod
    def of(cls, options: Optional[Mapping[str, object]], *, also: tuple[str, ...] = ()) -> Configuration:
        """From an engine's dictionary. `also` are keys that the plug-in itself reads; all others are refused."""
        given = dict(options or {})
        for key in given:
            if key not in _KEYS and key not in also:
                raise ConfigurationError(f"there is no option {key!r}: libkvbm's are {', '.join(sorted(_KEYS + also))}")
        settings = given.get("settings") or {}
        if not isinstance(settings, Mapping):
            raise ConfigurationError(f"settings is {settings!r}: a table of options and their values is expected")
        share = flag_of(given, "share", False)
        return cls(settings={str(key): value for key, value in settings.items()},
                   config_file=_text(given, "config_file"), disk=_text(given, "disk"),
                   disk_capacity=size_of(given.get("disk_capacity", "16GiB"), "disk_capacity"), share=share,
                   tenant=_text(given, "tenant"), secret=_secret(_text(given, "secret_file")),
                   revision=_text(given, "revision"), weak_hashes=flag_of(given, "weak_hashes", False))

    def open(self, block_bytes: int) -> Manager:
        """Makes the manager; its context lives as long as it. `block_bytes` is the largest record of the engine."""
        tiers = [Tier(self.disk, self.disk_capacity, Admit.ALL)] if self.disk else None
        try:
            with Context(self.settings, config_file=self.config_file) as context:
                return Manager(context, block_bytes=block_bytes, tiers=tiers, share=self.share)
        except KvbmError as error:
            raise ConfigurationError(f"libkvbm could not be started: {error}") from error


def flag_of(given: Mapping[str, object], key: str, default: bool = True) -> bool:
    value = given.get(key, default)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{key} is {value!r}: true or false")
    return value


def _text(given: Mapping[str, object], key: str) -> Optional[str]:
    value = given.get(key)
    if value is None or isinstance(value, (str, os.PathLike)):
        return None if value is None else os.fspath(value)
    raise ConfigurationError(f"{key} is {value!r}: a text is expected")


def _secret(file: Optional[str]) -> Optional[bytes]:
    if file is None:
        return None
    try:
        with open(file, "rb") as stream:
            secret = stream.read(32)
    except OSError as error:
        raise ConfigurationError(f"secret_file cannot be read: {error}") from error
    if len(secret) != 32:
        raise ConfigurationError(f"secret_file {file} has {len(secret)} bytes: at least 32 are needed")
    return secret
