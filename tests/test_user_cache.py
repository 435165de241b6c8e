"""A warning is printed if a cache of the user is not writable."""

from __future__ import annotations

from pathlib import Path

from optdb import user_cache


def test_each_cache_warns_once_with_the_cure(caplog, monkeypatch):
    monkeypatch.setattr(user_cache, "_warned", set())
    for reason in ("No space left on device", "Read-only file system"):
        error = OSError(28, reason)
        user_cache.warn_unwritable("answers", Path("/folder"), error, "asks again")
        user_cache.warn_unwritable("temporary files", Path("/other"), error, "asks again", "TMPDIR")
    assert caplog.messages == [
        "answers cannot be saved in /folder (No space left on device): each process asks again.\n"
        "The cure: name a folder with space that can be written: export XDG_CACHE_HOME=FOLDER",
        "temporary files cannot be saved in /other (No space left on device): each process asks again.\n"
        "The cure: name a folder with space that can be written: export TMPDIR=FOLDER",
    ]
