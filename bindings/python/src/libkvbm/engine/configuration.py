"""The options of libkvbm in an engine's configuration, and the manager made from them."""
from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Mapping, Optional

from ..constants import Admit
from ..context import Context, SettingValue
from ..errors import KvbmError
from ..manager import Manager, Tier
from .aside import ConfigurationError

_SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 10**3, "MB": 10**6,
          "GB": 10**9, "TB": 10**12}
_KEYS = ("config_file", "disk", "disk_capacity", "revision", "secret_file", "settings", "share", "stores", "tenant",
         "weak_hashes")
_URL = re.compile(r"[a-z][a-z0-9+-]*://|plugin:/")
_ORDINALS = ("first", "second", "third", "fourth or a later one")


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
    config_file    a TOML file with such options; tiers of several disks are given there. With `disk` or `stores`
                   the tiers of the file do not count
    disk           directory of a disk tier below host memory
    disk_capacity  hard cap of everything in it; 16GiB
    stores         the URL of a store (docs/stores.md), or a list of URLs, the nearest first: tiers below the disk,
                   without a cap. With `share` too each process uses them by itself
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
    stores: tuple[str, ...] = field(default=(), repr=False)  # a URL may have a password
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
                   disk_capacity=size_of(given.get("disk_capacity", "16GiB"), "disk_capacity"),
                   stores=_stores(given.get("stores")), share=share,
                   tenant=_text(given, "tenant"), secret=_secret(_text(given, "secret_file")),
                   revision=_text(given, "revision"), weak_hashes=flag_of(given, "weak_hashes", False))

    def open(self, block_bytes: int) -> Manager:
        """Makes the manager; its context lives as long as it. `block_bytes` is the largest record of the engine."""
        tiers = [Tier(self.disk, self.disk_capacity, Admit.ALL)] if self.disk else []
        tiers += [Tier(url=url) for url in self.stores]
        try:
            with Context(self.settings, config_file=self.config_file) as context:
                return Manager(context, block_bytes=block_bytes, tiers=tiers or None, share=self.share)
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


def _stores(given: object) -> tuple[str, ...]:
    """The URLs are not repeated in errors: one may have a password."""
    urls = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(urls, (list, tuple)) or not all(isinstance(url, str) for url in urls):
        raise ConfigurationError('stores is a URL or a list of URLs, as "s3://bucket/prefix"')
    for i, url in enumerate(urls):
        if not _URL.match(url):
            raise ConfigurationError(f'stores: the {_ORDINALS[min(i, 3)]} is no URL: as "s3://bucket/prefix", '
                                     '"file:///mnt/shared/kv" or "plugin:/path/of.so"')
    return tuple(urls)


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
