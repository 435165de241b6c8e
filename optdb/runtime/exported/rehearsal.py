"""The first run of a file's kernels, in a child process with limited time and memory.

Drivers for CPU devices compile in the calling process, where a compiler may crash, or use unlimited time and memory.
Before such a driver builds a kernel for a new group size, a child process therefore runs the whole call
(``rehearsal_child``). If the call succeeds, the kernels are recorded on disk as sound.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optdb.numpy_types import HostArray
from optdb.runtime import binaries, children
from optdb.runtime.context import Context
from optdb.runtime.errors import FileError, LimitError, ShapeError
from optdb.runtime.exported.archive import Limits
from optdb.runtime.records import array_bytes

BUILD_TIMEOUT_S = 300.0
#: The environment variable (0 or 1) that replaces the argument `build_in_child` if a file is loaded without it.
ENVIRONMENT_VARIABLE = "OPTDB_BUILD_IN_CHILD"

#: The module that the child process runs.
_CHILD = "optdb.runtime.exported.rehearsal_child"
_SOUND = b"sound"
_LAST_LINES = 5
#: The child's errors that the parent raises again unchanged.
_ERRORS = {
    kind.__name__: kind for kind in (FileError, LimitError, ShapeError, MemoryError, TypeError, ValueError, IndexError)
}

#: A program's source, the name of a kernel in the program, and the group size.
Variant = tuple[str, str, "tuple[int, ...] | None"]


def is_wanted(wish: bool | None, context: Context) -> bool:
    """Return whether kernels are first built in a child process, according to `wish`, the environment or the device."""
    if wish is not None:
        return wish
    of_environment = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if of_environment in ("0", "1"):
        return of_environment == "1"
    return context.profile.is_processor


@dataclass(frozen=True)
class Rehearsals:
    """Runs first calls in child processes, for at most `timeout_s` seconds each."""

    path: Path
    digest: str
    context: Context
    limits: Limits
    timeout_s: float

    def ensure_sound(self, method: str, arguments: Sequence[HostArray], variants: Iterable[Variant]) -> None:
        """Run a call in a child process unless its kernels are known to be sound; raise the child's error, if any."""
        sound = self.context.kept.setdefault(__name__, set())
        folder, device = binaries.current(), self.context.device
        keys = {binaries.key_of(device, source, ("sound", name, repr(group))) for source, name, group in set(variants)}
        unchecked = {key for key in keys - sound if folder.load(key) != _SOUND}
        if unchecked:
            self._rehearse(method, arguments)
        for key in unchecked:
            folder.save(key, _SOUND)
        sound.update(keys)

    def _rehearse(self, method: str, arguments: Sequence[HostArray]) -> None:
        child = subprocess.Popen(
            children.command(_CHILD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=children.environment(),
            # The child has its own session, so that the compiler's processes can be killed with it.
            start_new_session=True,
        )
        request = {
            "path": str(self.path.absolute()),
            "digest": self.digest,
            "method": method,
            "spec": self.context.spec,
            "device_kind": self.context.profile.device_kind,
            "compute_units": self.context.profile.compute_units,
            "limits": vars(self.limits),
            "timeout_s": self.timeout_s,
        }
        try:
            out, err = child.communicate(message(request, arguments), timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            raise FileError(
                f"a child process that tried its kernels did not finish in {self.timeout_s:g} s.\n"
                f"The cure: if you trust the file, optdb.load(..., build_timeout_s={2 * self.timeout_s:g})"
            ) from None
        finally:
            _end(child)
        _raise_what(child.returncode, out, err)


def message(request: dict[str, Any], arguments: Sequence[HostArray]) -> bytes:
    """Return a child's standard input: a line of JSON, followed by the arguments in NumPy's format."""
    return b"".join([json.dumps(request).encode(), b"\n", *map(array_bytes, arguments)])


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()


def _raise_what(status: int, out: bytes, err: bytes) -> None:
    """Raise the child's error, or an error about how the child ended."""
    outcome: Any = ()
    # A driver may also write to the child's standard output, even after the child's last line.
    with contextlib.suppress(ValueError):
        outcome = json.loads(out.decode(errors="replace").strip().split("\n")[-1])
    match outcome:
        case None:
            return
        case [str(kind), str(text)]:
            raise _ERRORS.get(kind, FileError)(text)
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    last = "\n".join(err.decode(errors="replace").strip().split("\n")[-_LAST_LINES:])
    raise FileError(f"its kernels ended the child process that tried them ({how}).\n{last}".strip())
