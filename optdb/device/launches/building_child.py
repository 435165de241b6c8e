"""Writes, builds and launches a persistent program in a child process: ``python -m`` this module SPEC FOLDER SIZE.

The child process reads the program's description as JSON. When the binary is on disk and the driver has cached the
kernel, the child process writes the case numbers and the source.
"""

from __future__ import annotations

import json
import sys

from optdb.device.launches.building import REPLY, ProgramDescription, build
from optdb.device.launches.entries import addresses_of
from optdb.runtime import binaries
from optdb.runtime.context import Context
from optdb.runtime.library import cl


def main() -> None:
    """Build the program described on standard input.

    The arguments are the device, the folder of built programs, and the folder's maximum size in megabytes.
    """
    spec, folder, megabytes = sys.argv[1:]
    binaries.configure(folder, int(megabytes))
    context = Context(spec)
    description = ProgramDescription.of_json(json.loads(sys.stdin.buffer.read()), context)
    written = source, cases = description.written()
    # The second build loads the binary of the first build, as the parent process will.
    for _ in range(2):
        program, _ = build(context, description, written)
    # The parent process queries addresses next, so the driver must have cached that kernel.
    addresses_of(context, program, [cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 8)])
    number = {unit: index for index, unit in enumerate(description.units)}
    listed = [(number[unit], name, case) for (unit, name), case in cases.items()]
    content = source.encode()
    head = json.dumps({"cases": listed, "length": len(content)}).encode()
    sys.stdout.buffer.write(b"".join([REPLY, head, b"\n", content]))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
