"""Files are written in one step or not at all; only regular files of limited size are read."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from optdb import files
from optdb.files import ChangedFileError, FileTooLargeError, NotAFileError, check_folder, read_file, replace_file
from optdb.host.theano.clinker.toolchain import Toolchain
from tests.disks import full_disk


def test_a_file_is_replaced_in_a_folder_of_the_users_own(tmp_path):
    path = tmp_path / "folder" / "file"
    for content in (b"one", b"", b"another"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]
    assert oct(path.parent.stat().st_mode)[-3:] == "700"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_what_was_there_and_no_draft(tmp_path, monkeypatch, error):
    def fail(self, target):
        raise error

    path = tmp_path / "file"
    replace_file(path, b"before")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(type(error)):
        replace_file(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_answers_of_the_toolchain_leave_no_draft_on_a_full_disk(tmp_path, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert Toolchain("sh", tmp_path).answer(["question"], lambda: "found") == "found"
    assert list(tmp_path.iterdir()) == []


def test_a_regular_file_is_read(tmp_path):
    path = tmp_path / "file"
    for content in (b"", b"some"):
        path.write_bytes(content)
        assert read_file(path, 4) == content
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link", 4) == b"some"
    with pytest.raises(FileTooLargeError, match="link") as caught:
        read_file(tmp_path / "link", 3)
    assert caught.value.nbytes == 4
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing", 4)


@pytest.mark.skipif(sys.platform != "linux", reason="FIFOs and devices are those of Linux")
@pytest.mark.parametrize("kind", ["fifo", "link to a fifo", "zeros", "null", "terminal", "folder", "socket", "loop"])
def test_what_is_no_regular_file_is_not_read(tmp_path, monkeypatch, kind):
    def refuse(descriptor, nbytes):
        raise AssertionError("it was read")

    path = irregular(tmp_path, kind)
    monkeypatch.setattr(files, "_read", refuse)
    # A socket, or a link to itself, cannot even be opened.
    with pytest.raises(OSError if kind in ("socket", "loop", "terminal") else NotAFileError, match="path"):
        read_file(path, 1 << 20)


def irregular(folder, kind):
    """Create something that is not a regular file."""
    path = folder / "path"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a fifo":
        os.mkfifo(folder / "fifo")
        path.symlink_to(folder / "fifo")
    elif kind in ("zeros", "null", "terminal"):
        path.symlink_to({"zeros": "/dev/zero", "null": "/dev/null", "terminal": "/dev/tty"}[kind])
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            here = Path.cwd()
            os.chdir(folder)  # a socket's address has at most 107 bytes
            server.bind("path")
            os.chdir(here)
    return path


def test_a_sparse_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_read", lambda descriptor, nbytes: b"")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 << 30)
    with pytest.raises(FileTooLargeError):
        read_file(tmp_path / "sparse", 1 << 30)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_a_file_without_an_end_is_empty():
    assert read_file(Path("/proc/self/status"), 1 << 20) == b""


@pytest.mark.parametrize("now", [b"", b"shor", b"longer"])
def test_a_file_that_changes_its_size_while_it_is_read(tmp_path, monkeypatch, now):
    def change(descriptor, nbytes):
        path.write_bytes(now)
        return read(descriptor, nbytes)

    path, read = tmp_path / "file", files._read
    path.write_bytes(b"short")
    monkeypatch.setattr(files, "_read", change)
    with pytest.raises(ChangedFileError, match="changed while it was read"):
        read_file(path, 1 << 20)


def test_no_descriptor_stays_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0
    (tmp_path / "file").write_bytes(b"some")
    for path in (tmp_path, tmp_path / "file"):
        for nbytes in (1, 100):
            try:
                read_file(path, nbytes)
            except OSError as error:
                assert isinstance(error, NotAFileError | FileTooLargeError)
    assert not before or len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_folder_on_a_full_disk_cannot_be_written(tmp_path):
    with full_disk(tmp_path / "disk") as folder, pytest.raises(OSError, match="No space left"):
        check_folder(folder)
    check_folder(tmp_path / "new")
