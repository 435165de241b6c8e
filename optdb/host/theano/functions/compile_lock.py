"""Makes Theano's lock of the compiledir, which its linkers take, raise an error if no file can be written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from theano.gof import compilelock

from optdb.files import check_folder
from optdb.host.api.patching import PatchGroup, Wrapper
from optdb.host.theano.importing.support import writing_compiledir

__all__ = ["refuse_full_disks"]


def refuse_full_disks() -> None:
    """Raise an error from now on if the lock's file cannot be written."""
    _patches.install()


def _checked(lock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(lock)
    def checked(tmp_dir: str, *args: Any, **kwargs: Any) -> None:
        compiledir = Path(tmp_dir).parent
        with writing_compiledir(compiledir):
            check_folder(compiledir)
        lock(tmp_dir, *args, **kwargs)

    return checked


_patches = PatchGroup(
    "Theano's lock",
    "from the import of Theano on",
    "nothing",
    [Wrapper(compilelock, "lock", _checked, "on a full disk it waits for a lock of nobody's, for minutes at a time")],
)
