"""Simulators are written into files that run without Theano (``optdb.load``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optdb.opencl.exporting import Report, of_method, write

if TYPE_CHECKING:
    from optdb.host.compiled import Function
    from optdb.opencl.simulator.executable import Executable
    from optdb.runtime.device_profiles import DeviceKind

#: What a simulator's own function is called in a file, if it has no name of its own.
OWN = "call"

#: Arguments, by place or by name.
Call = Sequence[Any] | Mapping[str, Any]
Examples = Mapping[str | None, Sequence[Call]] | Sequence[Call]


def export(
    path: str | Path,
    methods: Mapping[str, tuple[Function, Executable]],
    own: str,
    examples: Examples | None,
    device_kinds: Sequence[DeviceKind],
) -> list[Report]:
    """Write the functions of a simulator into a file, its own first; see `SimulatorOCL.export`.

    Parameters
    ----------
    methods : mapping
        By name, Theano's function and what computes it.
    own : str
        The name of the simulator's own function among them.
    """
    given = examples if isinstance(examples, Mapping) else {None: () if examples is None else examples}
    unknown = [name for name in given if name is not None and name not in methods]
    if unknown:
        there = ", ".join(repr(name) for name in methods if name != own) or "none besides its own"
        raise ValueError(f"there are examples for {unknown[0]!r}, and the simulator has no such method: it has {there}")
    name = methods[own][0].name
    ours = name if name and name.isidentifier() and name not in methods else OWN
    names = {own: ours, **{other: other for other in methods if other != own}}
    functions = {names[method]: of_method(*methods[method]) for method in (own, *methods)}
    calls = {names[own if name is None else name]: _calls(some) for name, some in given.items()}
    return write(path, functions, calls, device_kinds)


def _calls(examples: Sequence[Call]) -> list[Call]:
    """Return a function's examples, each of which is to be a call."""
    # Of an array, the elements are no calls, whatever its shape is.
    calls = list(examples)
    wrong = [call for call in calls if not isinstance(call, Mapping | tuple | list)]
    if not wrong:
        return calls
    raise TypeError(
        "examples is a sequence of calls, each of which is a sequence of arguments or a mapping of them by name; "
        f"an object of type {type(wrong[0]).__name__} is none.\n"
        "The cure, for one call with x and y: examples=[(x, y)]"
    )
