"""Digests of whole files: what is read, what is believed of an earlier reading, and what is not."""
from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

from libkvbm.engine import digest_cache, file_digests
from libkvbm.engine.aside import ConfigurationError
from libkvbm.engine.file_digests import digests_of

SHA = hashlib.sha256(b"content").digest()


class Reads:
    """Which files were read, and a clock that is far behind their last change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        real = file_digests._digest

        def digest(file: Path, *more: Any) -> bytes:
            self.names.append(file.name)
            return real(file, *more)

        monkeypatch.setattr(file_digests, "_digest", digest)
        monkeypatch.setattr(digest_cache, "now_ns", lambda: 1 << 62)

    def taken(self) -> list[str]:
        names, self.names = self.names, []
        return names


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reads:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Reads(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    made = tmp_path / "models" / "model.bin"
    made.write_bytes(b"content")
    os.utime(made, ns=(10**18, 10**18))
    return made


def digest(*files: Path) -> list[bytes]:
    named = {str(i): file for i, file in enumerate(files)}
    return [digests_of(named, "the test's files")[name] for name in named]


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "kvbm" / "digests").iterdir())


def test_a_file_is_read_once(reads: Reads, file: Path, tmp_path: Path) -> None:
    assert digest(file) == [SHA] and reads.taken() == ["model.bin"]
    assert digest(file) == [SHA] and reads.taken() == []
    place = tmp_path / "cache" / "kvbm" / "digests"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700 and [stat.S_IMODE(e.stat().st_mode) for e in entries(tmp_path)] == [0o600]


def path(file: Path) -> Path:
    other = file.with_name("other.bin")
    os.rename(file, other)
    return other


def size(file: Path) -> Path:
    times = file.stat()
    file.write_bytes(b"content, and more")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return file


def mtime(file: Path) -> Path:
    os.utime(file, ns=(10**18, 10**18 + 1))
    return file


def inode(file: Path) -> Path:
    times = file.stat()
    other = file.with_name("other.bin")
    other.write_bytes(b"CONTENT")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(other, file)
    return file


def same_times(file: Path) -> Path:
    """Written to in place, and the times set back."""
    times = file.stat()
    with open(file, "r+b") as stream:
        stream.write(b"C")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return file


@pytest.mark.parametrize("change", [path, size, mtime, inode, same_times])
def test_what_was_known_of_another_file_is_not_believed(reads: Reads, file: Path, change: Any) -> None:
    digest(file)
    reads.taken()
    changed = change(file)
    assert digest(changed) == [hashlib.sha256(changed.read_bytes()).digest()] and reads.taken() == [changed.name]
    assert digest(changed) == [hashlib.sha256(changed.read_bytes()).digest()] and reads.taken() == []


@pytest.mark.parametrize("field", ["path", "size", "mtime_ns", "ctime_ns", "inode", "version", "sha256"])
def test_each_field_of_an_entry_is_compared(reads: Reads, file: Path, tmp_path: Path, field: str) -> None:
    """As though the entry were of a file that differs in this alone."""
    digest(file)
    (entry,) = entries(tmp_path)
    found = json.loads(entry.read_text())
    found[field] = "/other" if field == "path" else "00" if field == "sha256" else found[field] + 1
    entry.write_text(json.dumps(found))
    reads.taken()
    assert digest(file) == [SHA] and reads.taken() == ["model.bin"]
    assert digest(file) == [SHA] and reads.taken() == []  # written anew


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"sha256": 1}', b"\xff\xfe", b'{"sha256": "zz"}', bytes(1 << 20)])
def test_an_entry_that_is_none_is_not_believed(reads: Reads, file: Path, tmp_path: Path, text: bytes) -> None:
    digest(file)
    entries(tmp_path)[0].write_bytes(text)
    reads.taken()
    assert digest(file) == [SHA] and reads.taken() == ["model.bin"]


def forged(tmp_path: Path, file: Path) -> Path:
    """An entry that gives the file another one's digest."""
    digest(file)
    (entry,) = entries(tmp_path)
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"sha256": "11" * 32}))
    return entry


def test_an_entry_of_this_user_is_believed(reads: Reads, file: Path, tmp_path: Path) -> None:
    """Without this the tests below would show nothing."""
    forged(tmp_path, file)
    assert digest(file) == [b"\x11" * 32]


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666, 0o622])
def test_an_entry_that_others_can_write_is_not_believed(reads: Reads, file: Path, tmp_path: Path, mode: int,
                                                        caplog: pytest.LogCaptureFixture) -> None:
    entry = forged(tmp_path, file)
    entry.chmod(mode)
    assert digest(file) == [SHA]
    assert "can be written by others" in caplog.text and "remove it" in caplog.text
    assert digest(file) == [SHA] and stat.S_IMODE(entry.stat().st_mode) == 0o600  # replaced


@pytest.mark.parametrize("of", ["entry", "folder"])
def test_what_another_user_owns_is_not_believed(reads: Reads, file: Path, tmp_path: Path, of: str,
                                                monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    entry = forged(tmp_path, file)
    if os.geteuid() == 0:
        os.chown(entry if of == "entry" else entry.parent, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65533)
    assert digest(file) == [SHA]
    assert "remove it" in caplog.text


def test_an_entry_that_is_a_link_is_not_believed(reads: Reads, file: Path, tmp_path: Path) -> None:
    entry = forged(tmp_path, file)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert digest(file) == [SHA]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(reads: Reads, file: Path, tmp_path: Path, mode: int,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    entry = forged(tmp_path, file)
    entry.parent.chmod(mode)
    before = entry.read_text()
    assert digest(file) == [SHA] and entry.read_text() == before
    assert "chmod 700" in caplog.text


def test_without_a_folder_files_are_read_each_time(reads: Reads, file: Path, tmp_path: Path,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert digest(file) == [SHA] == digest(file) and reads.taken() == ["model.bin"] * 2
    assert "XDG_CACHE_HOME" in caplog.text


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in (None, "", "relative/path"):
        monkeypatch.delenv("XDG_CACHE_HOME") if text is None and "XDG_CACHE_HOME" in os.environ else None
        if text is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", text)
        assert digest_cache._place() == str(tmp_path / ".cache" / "kvbm" / "digests")


def test_what_has_just_changed_is_not_kept(reads: Reads, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = file.stat().st_ctime_ns
    monkeypatch.setattr(digest_cache, "now_ns", lambda: changed + 1_999_999_999)
    assert digest(file) == [SHA] == digest(file) and reads.taken() == ["model.bin"] * 2
    monkeypatch.setattr(digest_cache, "now_ns", lambda: changed + 2_000_000_000)
    assert digest(file) == [SHA] == digest(file) and reads.taken() == ["model.bin"]


def test_entries_are_bounded_and_rests_removed(reads: Reads, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_cache, "MOST_ENTRIES", 3)
    for i in range(5):
        digest(path_of(file, i))
        os.utime(entries(tmp_path)[0].parent / digest_cache._entry(os.path.realpath(path_of(file, i))), ns=(i, i))
    assert len(entries(tmp_path)) == 3
    (entries(tmp_path)[0].parent / ".0123").write_text("of a process that was killed")
    digest(path_of(file, 9))
    assert len(entries(tmp_path)) == 3
    reads.taken()
    digest(path_of(file, 9))
    assert reads.taken() == []
    digest(path_of(file, 0))
    assert reads.taken() == ["0.bin"]


def path_of(file: Path, i: int) -> Path:
    made = file.with_name(f"{i}.bin")
    if not made.exists():
        made.write_bytes(b"content")
        os.utime(made, ns=(10**18, 10**18))
    return made


def test_two_that_read_at_once_agree(reads: Reads, file: Path) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.extend(digest(file))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [SHA] * 8 and digest(file) == [SHA]


def changes_while_it_is_read(file: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first update of the digest changes the file."""
    real = hashlib.sha256

    class Digest:
        def __init__(self) -> None:
            self.inner = real()
            self.changed = False

        def update(self, data: memoryview) -> None:
            self.inner.update(data)
            if not self.changed:
                self.changed = True
                if how == "replaced":
                    other = file.with_name("new.bin")
                    other.write_bytes(bytes(len(file.read_bytes())))
                    os.rename(other, file)
                else:
                    with open(file, "r+b") as stream:
                        stream.seek(0, 0 if how == "in place" else 2)
                        stream.write(b"changed")
                    if how == "cut":
                        os.truncate(file, 3)
                    os.utime(file, ns=(10**18, 10**18))

        def digest(self) -> bytes:
            return self.inner.digest()

    monkeypatch.setattr(file_digests, "hashlib", SimpleNamespace(sha256=Digest))


@pytest.mark.parametrize("how", ["in place", "longer", "cut", "replaced"])
def test_a_file_that_changes_meanwhile_has_no_digest(reads: Reads, file: Path, how: str, monkeypatch: pytest.MonkeyPatch,
                                                     tmp_path: Path) -> None:
    with monkeypatch.context() as patched:
        changes_while_it_is_read(file, how, patched)
        with pytest.raises(ConfigurationError, match="was changed while it was read: start again"):
            digest(file)
    assert entries(tmp_path) == []


def test_one_fault_ends_the_reading_of_all(reads: Reads, file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        digest(file, tmp_path / "models" / "nothing")


# ---- Hugging Face's cache

NAME = "ab" * 32


@pytest.fixture
def blob(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "hub" / "models--org--name"
    for folder in ("blobs", "snapshots/main/sub"):
        (root / folder).mkdir(parents=True)
    (root / "blobs" / NAME).write_bytes(b"content")
    yield root


def linked(root: Path, to: str = f"blobs/{NAME}", at: str = "snapshots/main/model.safetensors") -> Path:
    link = root / at
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(root / to, link.parent))
    return link


def test_a_blob_that_is_called_by_its_sha256_is_not_read(reads: Reads, blob: Path) -> None:
    assert digest(linked(blob), linked(blob, at="snapshots/main/sub/more.safetensors")) == [bytes.fromhex(NAME)] * 2
    (blob.parent / "alias").symlink_to(blob / "snapshots" / "main")
    assert digest(blob.parent / "alias" / "model.safetensors") == [bytes.fromhex(NAME)]
    assert reads.taken() == []


def test_what_only_looks_like_that_is_read(reads: Reads, blob: Path) -> None:
    for name in (NAME[:40], NAME.upper(), NAME + "0", NAME[:63], f"{NAME}.incomplete"):
        (blob / "blobs" / name).write_bytes(b"content")
        assert digest(linked(blob, f"blobs/{name}", f"snapshots/main/{name}")) == [SHA], name
    (blob / NAME).write_bytes(b"content")
    (blob / "other").mkdir()
    (blob / "other" / NAME).write_bytes(b"content")
    assert digest(linked(blob, f"other/{NAME}", "snapshots/main/a")) == [SHA]  # not among the blobs
    assert digest(linked(blob, NAME, "snapshots/main/b")) == [SHA]
    assert digest(linked(blob, at="elsewhere/c")) == [SHA]  # not in a snapshot
    assert digest(linked(blob, at="snapshots/d")) == [SHA]
    assert digest(blob / "blobs" / NAME) == [SHA]  # no link at all
    foreign = blob.parent / "models--other"
    (foreign / "snapshots" / "main").mkdir(parents=True)
    (foreign / "snapshots" / "main" / "e").symlink_to(blob / "blobs" / NAME)  # another model's blob
    assert digest(foreign / "snapshots" / "main" / "e") == [SHA]


@pytest.mark.parametrize("what", ["blobs", f"blobs/{NAME}"])
def test_a_name_that_others_could_give_is_worth_nothing(reads: Reads, blob: Path, what: str) -> None:
    link = linked(blob)
    (blob / what).chmod(0o777)
    assert digest(link) == [SHA]


# ---- what is said meanwhile

def test_a_long_reading_is_told_to_the_log(reads: Reads, file: Path, monkeypatch: pytest.MonkeyPatch,
                                           caplog: pytest.LogCaptureFixture) -> None:
    seconds = iter(range(0, 10**6, 20))
    monkeypatch.setattr(file_digests, "clock", lambda: float(next(seconds)))
    with caplog.at_level(logging.INFO, "libkvbm"):
        digest(file)
    assert "libkvbm reads the test's files: 0.0 of 0.0 GB" in caplog.text and "s left" in caplog.text


def test_a_long_reading_is_one_line_on_a_terminal(reads: Reads, file: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter(range(0, 10**6, 20))
    monkeypatch.setattr(file_digests, "clock", lambda: float(next(seconds)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    digest(file)
    said = capsys.readouterr().err
    assert said.startswith("\rlibkvbm reads the test's files: ") and "\n" not in said and said.endswith("\r")


def test_a_short_reading_says_nothing(reads: Reads, file: Path, caplog: pytest.LogCaptureFixture,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, "libkvbm"):
        digest(file)
    assert caplog.text == "" and capsys.readouterr().err == ""
