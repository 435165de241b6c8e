"""What measuring a device found to be best, on disk.

A finding is a small dict of JSON's types, kept under all that it depends on: the device, its driver, what is tuned and
for which dtype, and the version of whoever measured. A file that cannot be read, or that was written for something
else, counts as not there: then whoever asks goes on as on a device that was never measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir

from optdb.runtime.device_profiles import profile_of

#: Changed when files are written in another way.
FORMAT = "optdb tuning 1"

_folder: Path | None = None


def default_folder() -> Path:
    """Return the folder in the user's cache where findings are kept."""
    return Path(user_cache_dir("optdb", appauthor=False)) / "kernels"


def configure(folder: str | Path | None = None) -> Path:
    """Say where findings are kept from now on, and return it.

    Parameters
    ----------
    folder : str or Path, optional
        Without it, a folder in the user's cache.
    """
    global _folder
    _folder = Path(folder).expanduser().absolute() if folder else default_folder()
    return _folder


def key_of(device: Any, kind: str, dtype: str, version: str) -> dict[str, Any]:
    """Return all that a finding depends on.

    Parameters
    ----------
    device : pyopencl.Device
        What was measured. A part of a device is another device.
    kind : str
        What was tuned.
    dtype : str
        For which dtype.
    version : str
        Of whoever measured.
    """
    profile = profile_of(device)
    return {
        "format": FORMAT,
        "platform": profile.platform_name,
        "device": profile.name,
        "units": int(profile.compute_units),
        "driver": profile.driver.version.strip(),
        "kind": kind,
        "dtype": dtype,
        "version": version,
    }


def load(key: dict[str, Any], folder: Path | None = None) -> dict[str, Any] | None:
    """Return what was found, None if nothing was, or the file is damaged.

    Parameters
    ----------
    key : dict
        From `key_of`.
    folder : Path, optional
        Where; without it, where `configure` says.
    """
    try:
        content = json.loads(path_of(key, folder).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("key") != key or not isinstance(content.get("found"), dict):
        return None
    return content["found"]


def save(key: dict[str, Any], found: dict[str, Any], folder: Path | None = None) -> Path:
    """Write down what was found, in one step, and return the file.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    path = path_of(key, folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump({"key": key, "found": found}, file, indent=1)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return path


def forget(key: dict[str, Any], folder: Path | None = None) -> None:
    """Remove what was found, if there is anything."""
    path_of(key, folder).unlink(missing_ok=True)


def path_of(key: dict[str, Any], folder: Path | None = None) -> Path:
    """Return the file for a key."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return (folder or _folder or configure()) / f"tuning-{digest}.json"
