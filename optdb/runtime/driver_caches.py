"""PoCL's cache folder, and a temporary replacement if PoCL cannot use it.

PoCL lists no device if the folder is not writable, and ends the process if the folder's file system is full.
"""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from platformdirs import user_cache_path

from optdb.files import check_folder
from optdb.user_cache import warn_unwritable

__all__ = ["lend_folder", "unusable_folder_reason"]

#: The environment variable for PoCL's folder, by default in the user's cache. PoCL reads it once.
_VARIABLE = "POCL_CACHE_DIR"
#: The minimum free space for PoCL, enough for the object files of some kernels.
_LEAST_FREE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Loan:
    """A temporary folder for PoCL, and the error that makes its own unusable."""

    own: Path
    error: OSError
    folder: Path  #: The temporary folder, which PoCL creates when it starts.


@functools.cache
def lend_folder() -> _Loan | None:
    """Set a temporary folder for PoCL if it cannot use its own; call this before the first use of OpenCL."""
    own = _folder()
    error = _error(own)
    if error is None:
        return None
    try:
        temporary = tempfile.mkdtemp(prefix="optdb-pocl-")
    except OSError:  # no folder is writable
        return _Loan(own, error, own)
    atexit.register(_remove, temporary, os.getpid())
    loan = _Loan(own, error, Path(temporary, "kernels"))
    os.environ[_VARIABLE] = str(loan.folder)
    return loan


def unusable_folder_reason() -> str | None:
    """Return why PoCL cannot cache kernels, with the cure; warn if it uses a temporary folder."""
    loan = lend_folder()
    if loan is None:
        return None
    # If the program used OpenCL before optdb, PoCL uses its own folder.
    error = _error(loan.folder) if loan.folder.exists() else loan.error
    if error is None:
        warn_unwritable("PoCL's kernels", loan.own, loan.error, "builds them again", _VARIABLE)
        return None
    reason = error.strerror or error
    return f"its kernels cannot be saved in {loan.own} ({reason}) (the cure: export {_VARIABLE}=FOLDER)"


def _error(folder: Path) -> OSError | None:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        check_folder(existing, _LEAST_FREE_BYTES)
    except OSError as error:
        return error
    return None


def _folder() -> Path:
    named = os.environ.get(_VARIABLE)
    return Path(named).absolute() if named else user_cache_path() / "pocl"


def _remove(folder: str, process: int) -> None:
    # A forked process leaves the removal to its parent.
    if os.getpid() == process:
        rmtree(folder, ignore_errors=True)
