"""The folders in which OpenCL drivers keep what they build, and why a driver cannot use its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from platformdirs import user_cache_path

from optdb.files import check_folder

__all__ = ["full_folder", "unwritable_reason"]

#: Names PoCL's folder; without it, PoCL has one in the user's cache.
_POCL_VARIABLE = "POCL_CACHE_DIR"
#: What a driver needs at the least: the object files of some kernels.
_LEAST_FREE_BYTES = 1 << 20


def unwritable_reason() -> str | None:
    """Return which folder of the drivers cannot be written, with the cure; None if all can.

    PyOpenCL fails without the user's cache folder, and PoCL lists no device without its own.
    """
    folders = {"XDG_CACHE_HOME": user_cache_path()}
    if _POCL_VARIABLE in os.environ:
        folders[_POCL_VARIABLE] = _folder()
    for variable, folder in folders.items():
        try:
            check_folder(folder)
        except OSError as error:
            return (
                f"OpenCL drivers keep what they build in {folder}, which cannot be written ({error.strerror}).\n"
                f"The cure: name a folder that can: export {variable}=FOLDER"
            )
    return None


def full_folder() -> Path | None:
    """Return PoCL's folder if its file system is full; None otherwise."""
    folder = _folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return folder if shutil.disk_usage(existing).free < _LEAST_FREE_BYTES else None


def _folder() -> Path:
    named = os.environ.get(_POCL_VARIABLE)
    return Path(named).absolute() if named else user_cache_path() / "pocl"
