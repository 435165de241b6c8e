"""Reports of what a function's device and host do."""

from __future__ import annotations

from typing import Any

from optdb.pytensor.compiled import device_function
from optdb.pytensor.host_groups import op_name


def explain(function: Any) -> str:
    """Return what a compiled function does on its device, for the shapes of each plan, and what its host computes.

    Parameters
    ----------
    function : Function
        A function of PyTensor in mode OPENCL that has been called.

    Raises
    ------
    TypeError
        If the function is of another mode.
    """
    compiled = device_function(function)
    lines: list[str] = []
    for shapes, plan in compiled.function.plans:
        lines.append(f"arguments of shapes {', '.join(map(str, shapes))}:")
        lines += [f"  device: {work}" for work in plan.device_work]
        lines += [f"  host: {step.work} moves {step.moved_nbytes:,} bytes in each call" for step in plan.host_steps]
    if compiled.host.reasons:
        lines.append("nodes on the host:")
        lines += [f"  {op_name(node)}: {reason}" for node, reason in compiled.host.reasons.items()]
    return "\n".join(lines or ["not called yet"])
