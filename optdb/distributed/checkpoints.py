"""Checkpoints: files with the training state, written atomically."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from optdb import files
from optdb.host.api.variables import SharedVariable, TensorType

__all__ = ["check_folder", "latest", "load", "save"]

#: The number of files to keep; older files are deleted.
KEPT = 2
_PREFIX, _SUFFIX = "state-", ".npz"


def check_folder(folder: Path) -> None:
    """Create a folder for checkpoints; raise OSError if the folder is not writable."""
    with _naming_the_cure(folder):
        files.check_folder(folder)


@contextmanager
def _naming_the_cure(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cure = f"{error.strerror}. The cure: give checkpoint= a folder with space that can be written"
        raise OSError(error.errno, cure, str(folder)) from error


def save(folder: Path, state: Sequence[Any], steps: int, shared: Sequence[SharedVariable]) -> Path:
    """Write the state after `steps` steps to a folder, which keeps at most `KEPT` files; raise OSError on failure."""
    arrays = {f"value_{i}": _as_array(value, var) for i, (value, var) in enumerate(zip(state, shared, strict=True))}
    buffer = io.BytesIO()
    np.savez(buffer, steps=np.int64(steps), names=np.array([str(var.name) for var in shared]), **arrays)
    path = folder / f"{_PREFIX}{steps:012d}{_SUFFIX}"
    with _naming_the_cure(folder):
        files.replace_file(path, buffer.getbuffer(), is_durable=True)
        for old in _files(folder)[:-KEPT]:
            old.unlink(missing_ok=True)
    return path


def latest(folder: Path) -> Path | None:
    """Return the latest checkpoint in a folder; None if there is none."""
    return next(reversed(_files(folder)), None)


def load(path: Path, shared: Sequence[SharedVariable]) -> tuple[list[Any], int]:
    """Return the state in a file, and the number of steps after which it was saved.

    Load only files that you trust: the states of random generators are unpickled, and unpickling can run any code.
    Raise ValueError if the file contains the state of a different function.
    """
    with np.load(path, allow_pickle=False) as file:
        names, own = [str(name) for name in file["names"]], [str(var.name) for var in shared]
        if names != own:
            raise ValueError(
                f"{path} has the shared variables {', '.join(names)}, but the function has {', '.join(own)}.\n"
                "The cure: pass a different checkpoint= folder for each function"
            )
        state = [_from_array(file[f"value_{i}"], var, path) for i, var in enumerate(shared)]
        return state, int(file["steps"])


def _as_array(value: Any, var: SharedVariable) -> np.ndarray:
    if isinstance(var.type, TensorType):
        return np.asarray(value)
    return np.frombuffer(pickle.dumps(value), "uint8")


def _from_array(value: np.ndarray, var: SharedVariable, path: Path) -> Any:
    if not isinstance(var.type, TensorType):
        return pickle.loads(value.tobytes())
    if value.dtype != var.type.dtype or value.ndim != var.type.ndim:
        raise ValueError(f"{path} has {value.dtype} {value.shape} for {var.name}, but the function has {var.type}")
    return value


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))
