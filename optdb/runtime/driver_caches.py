"""PoCL's cache folder, and a temporary replacement if PoCL cannot use it.

PoCL lists no devices if the folder is not writable, and ends the process if its file system is full.
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
from optdb.runtime.errors import DeviceFault
from optdb.user_cache import warn_unwritable

__all__ = ["lend_folder", "unusable_folder"]

#: The environment variable that sets PoCL's folder, which is in the user's cache by default. PoCL reads it once.
_VARIABLE = "POCL_CACHE_DIR"
#: The minimum free space for PoCL in bytes, enough for the object files of several kernels.
_LEAST_FREE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Loan:
    """A temporary folder for PoCL, and the error that makes PoCL's own folder unusable."""

    own: Path
    error: OSError
    folder: Path  #: The temporary folder, which PoCL creates when it starts.


@functools.cache
def lend_folder() -> _Loan | None:
    """Set a temporary folder for PoCL if PoCL cannot use its own; must be called before OpenCL is first used."""
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


def unusable_folder() -> DeviceFault | None:
    """Return why PoCL cannot cache kernels, and the cure; None if it can. Warn if PoCL uses a temporary folder."""
    loan = lend_folder()
    if loan is None:
        return None
    # If the program used OpenCL before optdb, PoCL uses its own folder.
    error = _error(loan.folder) if loan.folder.exists() else loan.error
    if error is None:
        warn_unwritable("PoCL's kernels", loan.own, loan.error, "builds them again", _VARIABLE)
        return None
    reason = error.strerror or error
    return DeviceFault(
        f"its kernels cannot be saved in {loan.own} ({reason})",
        f"name a folder for PoCL's kernels:\n    export {_VARIABLE}=FOLDER",
    )


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
    # Only the process that created the folder removes it, not a fork of that process.
    if os.getpid() == process:
        rmtree(folder, ignore_errors=True)
