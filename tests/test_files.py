"""Files are written in one step, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from optdb.host.clinker.toolchain import Toolchain
from optdb.user_cache import replace_file


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
