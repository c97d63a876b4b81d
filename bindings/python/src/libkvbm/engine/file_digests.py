"""SHA-256 of whole files: of several at a time, with a line that says how far it is, and of none twice.

A file of Hugging Face's cache needs no reading: its cache calls what it has fetched by its SHA-256."""
from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import sys
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Mapping, Optional

from .aside import ConfigurationError
from .digest_cache import DigestCache, Stamp

# SHA-256 is one stream a file; a start has few processors to spare, and disks are slower than eight of them.
_MOST_THREADS = 8
_CHUNK = 4 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TELL_FIRST_S, _TELL_S, _LOG_S = 1.0, 0.5, 10.0


def digests_of(files: Mapping[str, Path], what: str, log: Optional[logging.Logger] = None) -> dict[str, bytes]:
    """SHA-256 of each of the files, under the names that they are given here. ConfigurationError for one that cannot be
    read, or that is changed meanwhile. `what` they are is said while it takes long. Blocks: until all are read."""
    log = log or logging.getLogger("libkvbm")
    cache = DigestCache(log)
    try:
        known: dict[str, bytes] = {}
        unread: dict[str, tuple[Path, Stamp]] = {}
        for name, file in files.items():
            try:
                stamp = Stamp.of(os.stat(file))
            except OSError as error:
                raise unreadable(file, error) from error
            found = named_by_hub(file) or cache.get(os.path.realpath(file), stamp)
            if found is None:
                unread[name] = file, stamp
            else:
                known[name] = found
        for name, digest in _read(unread, what, log).items():
            cache.put(os.path.realpath(unread[name][0]), unread[name][1], digest)
            known[name] = digest
    finally:
        cache.close()
    return known


def unreadable(file: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{file} cannot be read ({error.strerror}), so that nothing can tell which weights these are: "
                              f"let user {os.geteuid()} read it (chmod, chown), or fetch it again")


def named_by_hub(file: Path) -> Optional[bytes]:
    """The SHA-256 in the name of a large file in Hugging Face's cache: .../snapshots/<revision>/<name> is a link to
    .../blobs/<SHA-256>. None for any other file, for small ones (40 digits of Git's SHA-1), and if others may write to
    the folder, because then the name proves nothing."""
    if not file.is_symlink():
        return None
    blob = Path(os.path.realpath(file))
    root = blob.parent.parent
    snapshots = os.path.join(root, "snapshots", "")
    if (blob.parent.name != "blobs" or not _SHA256.fullmatch(blob.name)
            or not os.path.join(os.path.realpath(file.parent), "").startswith(snapshots)
            or os.path.realpath(file.parent) == snapshots.rstrip(os.sep)):
        return None
    try:
        modes = [os.stat(blob).st_mode, os.stat(blob.parent).st_mode]
    except OSError:
        return None
    return None if any(mode & stat.S_IWOTH for mode in modes) else bytes.fromhex(blob.name)


def clock() -> float:
    return time.monotonic()


class _Progress:
    """One line that is written over on a terminal, a line now and then in a log; nothing of what is soon over."""

    def __init__(self, what: str, total: int, log: logging.Logger) -> None:
        self._what, self._total, self._log = what, total, log
        self._lock = threading.Lock()
        self._done = 0
        self._began = clock()
        self._told = self._began
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._width = 0
        self.stopped = False

    def read(self, n: int) -> None:
        with self._lock:
            self._done += n

    def tell(self) -> None:
        now = clock()
        since = now - self._began
        if since < _TELL_FIRST_S or self._done == 0:
            return
        rate = self._done / since
        line = (f"libkvbm reads {self._what}: {self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB, {rate / 1e9:.1f} GB/s, "
                f"{max(self._total - self._done, 0) / rate:.0f} s left; the result is kept")
        if self._terminal:
            print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(line)
        elif now - self._told > _LOG_S:
            self._told = now
            self._log.info("%s", line)

    def end(self) -> None:
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
        if clock() - self._began > _LOG_S:
            self._log.info("libkvbm has read %s: %.1f GB in %.0f s", self._what, self._done / 1e9,
                           clock() - self._began)


def _read(files: Mapping[str, tuple[Path, Stamp]], what: str, log: logging.Logger) -> dict[str, bytes]:
    if not files:
        return {}
    progress = _Progress(what, sum(stamp.size for _, stamp in files.values()), log)
    largest_first = sorted(files, key=lambda name: -files[name][1].size)
    threads = min(len(files), _MOST_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads, thread_name_prefix="libkvbm-read") as pool:
        futures: dict[Future[bytes], str] = {pool.submit(_digest, *files[name], progress): name for name in largest_first}
        try:
            left = set(futures)
            while left:
                ended, left = wait(left, _TELL_S, FIRST_EXCEPTION)
                for future in ended:
                    future.result()
                progress.tell()
        finally:
            progress.stopped = True  # unfinished digests are not wanted any more
            pool.shutdown(cancel_futures=True)
            progress.end()
    return {name: future.result() for future, name in futures.items()}


def _digest(file: Path, stamp: Stamp, progress: _Progress) -> bytes:
    """Of all bytes of a file, which must be the same file from the first to the last of them."""
    digest, buffer, n = hashlib.sha256(), memoryview(bytearray(min(_CHUNK, stamp.size + 1))), 0
    try:
        with open(file, "rb", buffering=0) as stream:
            while not progress.stopped and n <= stamp.size and (got := stream.readinto(buffer)):
                digest.update(buffer[:got])
                n += got
                progress.read(got)
            after = Stamp.of(os.fstat(stream.fileno()))
        there = Stamp.of(os.stat(file))
    except OSError as error:
        raise unreadable(file, error) from error
    if not progress.stopped and (n != stamp.size or not stamp == after == there):
        raise ConfigurationError(f"{file} was changed while it was read: start again when whatever writes to it has ended")
    return digest.digest()
