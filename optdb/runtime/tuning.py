"""Stores tuning results on disk.

A finding is a small JSON dict. A finding's key contains the device, the driver, the tuned operation and dtype, and the
tuner's version. Unreadable files, and files with a different key, are ignored.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from optdb.files import read_file, replace_file
from optdb.json_text import parse_json
from optdb.runtime import binaries
from optdb.runtime.device_profiles import profile_of

#: Change this text whenever the file format changes.
FORMAT = "optdb tuning 1"
#: The maximum size of a file in bytes; a finding takes a few kilobytes.
_MAX_BYTES = 1 << 20


def key_of(device: Any, kind: str, dtype: str, version: str) -> dict[str, Any]:
    """Return the key of a finding; a sub-device has its own key."""
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


def load(key: dict[str, Any]) -> dict[str, Any] | None:
    """Return the finding stored under a key; None if there is none or the file is damaged."""
    try:
        content = parse_json(read_file(path_of(key), _MAX_BYTES))
    except (OSError, ValueError):
        return None
    found = content.get("found") if isinstance(content, dict) and content.get("key") == key else None
    return found if isinstance(found, dict) else None


def save(key: dict[str, Any], found: dict[str, Any]) -> Path:
    """Write a finding atomically and return the file's path; raise OSError if it cannot be written."""
    path = path_of(key)
    replace_file(path, json.dumps({"key": key, "found": found}, indent=1).encode())
    return path


def forget(key: dict[str, Any]) -> None:
    """Remove the finding stored under a key, if there is one."""
    path_of(key).unlink(missing_ok=True)


def path_of(key: dict[str, Any]) -> Path:
    """Return the path of a key's file in the folder for built programs."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return binaries.current().folder / f"tuning-{digest}.json"
