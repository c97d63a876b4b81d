"""Cache of file digests in the user's cache directory: models are large and seldom change.

One small file for each, $XDG_CACHE_HOME/kvbm/digests/<SHA-256 of the path>, else in ~/.cache. An entry is valid only if
no other user can have written it, and if path, size, times and inode are those of its file. Two processes that write at
once write the same bytes. Any fault here costs only one more reading of the file.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import stat
import time
from typing import Iterator, NamedTuple, Optional

MOST_ENTRIES = 4096
_VERSION = 1
_MOST_BYTES = 16 << 10
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# A file that was changed later than this before it was read could be changed once more with the same times.
_SETTLED_NS = 2_000_000_000
_ABANDONED_S = 3600


class Stamp(NamedTuple):
    """Properties of a file that stay the same until it is written or replaced."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def now_ns() -> int:
    return time.time_ns()


class DigestCache:
    """Thread: one."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.place = _place()
        self._folder = self._open()
        self._grown = False

    def get(self, path: str, stamp: Stamp) -> Optional[bytes]:
        if self._folder is None:
            return None
        try:
            descriptor = os.open(_entry(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                                 dir_fd=self._folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._doubt(path, f"cannot be read ({error.strerror})")
            return None
        with open(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                self._doubt(path, "is not a file of this user's")
                return None
            if status.st_mode & _OTHERS_WRITE:
                self._doubt(path, "can be written by others")
                return None
            return _read(stream.read(_MOST_BYTES), path, stamp)

    def put(self, path: str, stamp: Stamp, digest: bytes) -> None:
        """Keeps it, unless the file has changed so lately that its times say nothing."""
        if self._folder is None or now_ns() - max(stamp.mtime_ns, stamp.ctime_ns) < _SETTLED_NS:
            return
        text = json.dumps({"version": _VERSION, "path": path, **stamp._asdict(), "sha256": digest.hex()})
        temporary = f".{secrets.token_hex(8)}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600,
                                 dir_fd=self._folder)
            with open(descriptor, "w") as stream:
                stream.write(text)
            os.rename(temporary, _entry(path), src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._grown = True
        except OSError as error:
            self._log.warning("libkvbm cannot keep what it knows of files in %s (%s): they are read again at the next "
                              "start", self.place, error.strerror)

    def close(self) -> None:
        if self._folder is not None:
            if self._grown:
                self._bound()
            os.close(self._folder)
            self._folder = None

    def _open(self) -> Optional[int]:
        if self.place is None:
            return None
        try:
            os.makedirs(os.path.dirname(self.place), 0o700, exist_ok=True)
            try:
                os.mkdir(self.place, 0o700)
            except FileExistsError:
                pass
            descriptor = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            self._log.warning("libkvbm cannot use %s (%s): models are read anew at each start; set XDG_CACHE_HOME to a "
                              "directory of this user's", self.place, error.strerror)
            return None
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE:
            return descriptor
        os.close(descriptor)
        self._log.warning("libkvbm does not use %s, which others can write to: models are read anew at each start; chmod "
                          "700 it, or remove it if it is another user's", self.place)
        return None

    def _doubt(self, path: str, why: str) -> None:
        self._log.warning("libkvbm does not believe %s/%s, which %s, and reads %s again: remove it", self.place,
                          _entry(path), why, path)

    def _bound(self) -> None:
        """The oldest go, and what a process that was killed has left."""
        assert self._folder is not None
        found = sorted(self._entries())
        left = [name for changed, name in found if name.startswith(".") and now_ns() - changed > _ABANDONED_S * 10**9]
        kept = [name for _, name in found if not name.startswith(".")]
        for name in left + kept[:max(len(kept) - MOST_ENTRIES, 0)]:
            with contextlib.suppress(OSError):  # another process was quicker
                os.unlink(name, dir_fd=self._folder)

    def _entries(self) -> Iterator[tuple[int, str]]:
        for name in os.listdir(self._folder):
            with contextlib.suppress(OSError):
                yield os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mtime_ns, name


def _place() -> Optional[str]:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # as the specification has it
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".cache")
    return os.path.join(base, "kvbm", "digests")


def _entry(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()


def _read(data: bytes, path: str, stamp: Stamp) -> Optional[bytes]:
    """The digest, if this is of that file as it is now."""
    try:
        found = json.loads(data)
        digest = bytes.fromhex(found["sha256"])
        same = found["version"] == _VERSION and found["path"] == path and Stamp(
            *(found[name] for name in Stamp._fields)) == stamp
    except (ValueError, KeyError, TypeError):
        return None
    return digest if same and len(digest) == 32 else None
