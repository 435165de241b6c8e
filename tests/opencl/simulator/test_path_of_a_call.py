"""A call of a simulator passes through few modules, which docs/plans.md shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import optdb
from optdb.runtime.commands import CommandList
from tests.opencl.simulator.made import training_step

_PACKAGE = Path(optdb.__file__).parent
#: The maximum number of the package's modules between the caller and OpenCL's library.
_MOST_MODULES = 7


def paths_to_commands(call):
    """Whenever a call enqueues commands, record optdb's modules on the stack, outermost first; return these lists."""
    paths = []

    def note(frame, event, _):
        if event != "call" or frame.f_code is not CommandList.enqueue.__code__:
            return
        files = []
        while frame is not None:
            files.append(Path(frame.f_code.co_filename))
            frame = frame.f_back
        inside = [file.relative_to(_PACKAGE).as_posix() for file in reversed(files) if _PACKAGE in file.parents]
        paths.append(list(dict.fromkeys(inside)))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return paths


def test_commands_of_a_call_go_through_the_modules_that_the_documentation_draws():
    _, sim, _, args = training_step()
    for _ in range(3):
        sim(*args)
    page = (_PACKAGE.parent / "docs" / "plans.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^ (\S+\.py) ", page, flags=re.MULTILINE)
    paths = paths_to_commands(lambda: sim(*args))
    assert drawn in paths
    assert max(map(len, paths)) <= _MOST_MODULES
