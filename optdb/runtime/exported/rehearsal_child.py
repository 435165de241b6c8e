"""The child process of a rehearsal, which runs one call with limited time and memory.

The request comes from standard input; the last line of standard output is the outcome.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.context import Context
from optdb.runtime.errors import FileError
from optdb.runtime.exported.archive import GIBIBYTE, Limits
from optdb.runtime.exported.model import load

#: The memory in bytes that a compiler may use in addition to the file's limits.
COMPILER_BYTES = 2 * GIBIBYTE


def received(message: bytes) -> tuple[dict[str, Any], list[HostArray]]:
    """Split a message into the request and the arguments."""
    stream = io.BytesIO(message)
    request, arguments = json.loads(stream.readline()), []
    while stream.tell() < len(message):
        arguments.append(np.load(stream, allow_pickle=False))
    return request, arguments


def limit(limits: Limits, timeout_s: float) -> None:
    """Limit the CPU time and the additional memory of this process, if the system supports it."""
    try:
        import resource
    except ImportError:
        return
    # If the parent dies, only this limit ends the child. The CPU time includes all threads of the driver.
    cpu_s = int(timeout_s * (os.cpu_count() or 1)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        most = now + limits.max_host_bytes + limits.max_device_bytes + COMPILER_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Run the request read from standard input and write the outcome."""
    request, arguments = received(sys.stdin.buffer.read())
    context = Context(request["spec"])
    context.profile = context.profile.as_kind(request["device_kind"], request["compute_units"])
    limits = Limits(**request["limits"])
    limit(limits, request["timeout_s"])
    outcome = None
    try:
        loaded = load(request["path"], context, build_in_child=False, **request["limits"])
        if loaded.digest != request["digest"]:
            raise FileError("the file was changed after it was loaded.\nThe cure: load it again")
        loaded[request["method"]].run(arguments)
    except Exception as error:
        traceback.print_exc()
        outcome = type(error).__name__, str(error)
    sys.stdout.write(f"\n{json.dumps(outcome)}\n")
    sys.stdout.flush()
    # Exit without waiting for driver threads that hang.
    os._exit(0)


if __name__ == "__main__":
    main()
