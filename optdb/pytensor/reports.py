"""Reports on the work that a function does on its device and on the host."""

from __future__ import annotations

from typing import Any

from optdb.pytensor.choosing import ChoosingFunction
from optdb.pytensor.compiled import device_function
from optdb.pytensor.host_groups import op_name
from optdb.pytensor.linker import OpenCLFunction

_NOT_CALLED = "not called yet"


def explain(function: Any) -> str:
    """Return a report on the work of a compiled function on its device, by plan and shapes, and on the host.

    Parameters
    ----------
    function : Function
        A function of PyTensor in mode OPENCL or OPENCL_AUTO that has been called. In mode OPENCL_AUTO, the report
        begins with the choice for the shapes of its calls.

    Raises
    ------
    TypeError
        If the function is of another mode.
    """
    compiled = getattr(getattr(function, "vm", None), "jit_fn", None)
    if not isinstance(compiled, ChoosingFunction):
        return "\n".join(_device_lines(device_function(function)) or [_NOT_CALLED])
    lines = [
        f"{'shapes ' + ', '.join(map(str, shapes)) if shapes else 'all calls'}: {choice}"
        for shapes, choice in compiled.choices.items()
    ]
    if compiled.device is not None:
        lines += _device_lines(compiled.device)
    return "\n".join(lines or [_NOT_CALLED])


def _device_lines(compiled: OpenCLFunction) -> list[str]:
    lines: list[str] = []
    for shapes, plan in compiled.function.traced_calls:
        lines.append(f"arguments of shapes {', '.join(map(str, shapes))}:")
        lines += [f"  device: {work}" for work in plan.device_work]
        lines += [f"  host: {step.work} moves {step.moved_nbytes:,} bytes in each call" for step in plan.host_steps]
    if compiled.host.reasons:
        lines.append("nodes on the host:")
        lines += [f"  {op_name(node)}: {reason}" for node, reason in compiled.host.reasons.items()]
    return lines
