"""Translates scalar ops, including Composites, to programs: sequences of kernels with allocated registers.

A program's text is a Python function with one line for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.api.graph import Constant, Variable, io_toposort
from optdb.host.theano.vectorized.scalar_kernels.entries import ArrayKernel, copy
from optdb.host.theano.vectorized.scalar_kernels.kernels import kernel_of


@dataclass(frozen=True)
class Temporary:
    """A register: an array with a given dtype in a numbered buffer."""

    number: int
    dtype: np.dtype
    #: Whether the register holds a single number instead of an array of the block's shape.
    is_number: bool


@dataclass(frozen=True)
class UfuncProgram:
    """A compiled sequence of kernels; ``run`` takes the inputs, the outputs and the temporaries."""

    run: Callable[..., None]
    temporaries: tuple[Temporary, ...]
    is_ufunc: bool
    text: str


@dataclass(eq=False)
class _Value:
    """A value of the program: an input, a constant, or the result of a step."""

    dtype: str
    is_number: bool
    name: str = ""
    last_use: int = -1


@dataclass
class _KernelCall:
    function: Callable[..., Any]
    operands: list[_Value]
    result: _Value
    in_place: bool


@dataclass
class _Builder:
    steps: list[_KernelCall] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    _converted: dict[tuple[_Value, str], _Value] = field(default_factory=dict)

    def constant(self, data: Any, dtype: str) -> _Value:
        array = np.array(data, dtype=dtype)
        array.setflags(write=False)
        value = _Value(dtype, True, f"c{len(self.names)}")
        self.names[value.name] = array
        return value

    def step(self, function: Callable[..., Any], operands: list[_Value], dtype: str, in_place: bool) -> _Value:
        result = _Value(dtype, all(operand.is_number for operand in operands))
        self.steps.append(_KernelCall(function, operands, result, in_place))
        return result

    def apply(self, kernel: ArrayKernel, operands: Sequence[_Value], dtype: str) -> _Value:
        converted = [self.convert(value, to) for value, to in zip(operands, kernel.dtypes, strict=True)]
        if not kernel.folds:
            return self.step(kernel.function, converted, dtype, kernel.in_place)
        value, *rest = converted
        for operand in rest:
            value = self.step(kernel.function, [value, operand], dtype, kernel.in_place)
        return value

    def convert(self, value: _Value, dtype: str) -> _Value:
        if value.dtype == dtype:
            return value
        key = value, dtype
        if key not in self._converted:
            if value.name in self.names:
                with np.errstate(all="ignore"):
                    self._converted[key] = self.constant(self.names[value.name].astype(dtype), dtype)
            else:
                self._converted[key] = self.step(copy, [value], dtype, True)
        return self._converted[key]


def program_of(
    op: Any, inputs: Sequence[Variable], numbers: Sequence[bool], overwrites: Mapping[int, int]
) -> UfuncProgram:
    """Translate a scalar op, applied to `inputs`.

    `numbers` says which inputs are single numbers; the other inputs have the shape of the block. `overwrites` maps an
    output index to the index of the input that it overwrites.
    """
    builder = _Builder()
    values: dict[Variable, _Value] = {}
    for index, (var, is_number) in enumerate(zip(inputs, numbers, strict=True)):
        if is_number and isinstance(var, Constant):
            values[var] = builder.constant(var.data.reshape(()), var.type.dtype)
        else:
            values.setdefault(var, _Value(var.type.dtype, is_number, f"i{index}"))
    operands = [values[var] for var in inputs]
    results = _inlined(builder, op, operands)
    outputs = [_as_result(builder, value, results[:index], operands) for index, value in enumerate(results)]
    return _compiled(builder, operands, outputs, overwrites)


def _inlined(builder: _Builder, op: Any, inputs: Sequence[_Value]) -> list[_Value]:
    """Append the steps of an op, and return the values of its outputs."""
    if not isinstance(op, scalars.Composite):
        node = scalars.scalar_node(op, [value.dtype for value in inputs])
        return [builder.apply(kernel_of(node), inputs, node.outputs[0].type.dtype)]
    values: dict[Variable, _Value] = dict(zip(op.fgraph.inputs, inputs, strict=True))
    outputs = op.fgraph.outputs
    for node in io_toposort(op.fgraph.inputs, outputs):
        operands = [_value_of(builder, var, values) for var in node.inputs]
        if isinstance(node.op, scalars.Composite):
            values.update(zip(node.outputs, _inlined(builder, node.op, operands), strict=True))
        else:
            values[node.outputs[0]] = builder.apply(kernel_of(node), operands, node.outputs[0].type.dtype)
    return [_value_of(builder, var, values) for var in outputs]


def _value_of(builder: _Builder, var: Variable, values: dict[Variable, _Value]) -> _Value:
    if var not in values:
        if not isinstance(var, Constant):
            raise TypeError(f"{var} of a Composite is neither computed nor a constant")
        values[var] = builder.constant(var.data, var.type.dtype)
    return values[var]


def _as_result(builder: _Builder, value: _Value, earlier: Sequence[_Value], inputs: Sequence[_Value]) -> _Value:
    """Return `value`, or a copy if `value` cannot itself be an output."""
    is_own = not value.name and all(value is not other for other in earlier)
    is_spread = value.is_number and not all(other.is_number for other in inputs)
    return value if is_own and not is_spread else builder.step(copy, [value], value.dtype, True)


def _compiled(
    builder: _Builder, inputs: Sequence[_Value], outputs: Sequence[_Value], overwrites: Mapping[int, int]
) -> UfuncProgram:
    steps = _used(builder.steps, outputs)
    for index, step in enumerate(steps):
        for operand in step.operands:
            operand.last_use = index
    kept = _assign_outputs(steps, inputs, outputs, overwrites)
    temporaries = _assign_registers(steps)
    lines = [_line(builder, index, step) for index, step in enumerate(steps)]
    lines += [f"copyto({to}, {value.name})" for value, to in kept]
    parameters = [
        *(f"i{index}" for index in range(len(inputs))),
        *(f"o{index}" for index in range(len(outputs))),
        *temporaries,
    ]
    is_ufunc = len(lines) == 1 and isinstance(steps[0].function, np.ufunc)
    text = f"def run({', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"]) + "\n"
    names = {**builder.names, "copyto": np.copyto}
    exec(compile(text, "<scalar program>", "exec"), names)
    return UfuncProgram(names["run"], tuple(temporaries.values()), is_ufunc, text)


def _used(steps: list[_KernelCall], outputs: Sequence[_Value]) -> list[_KernelCall]:
    needed = {id(value) for value in outputs}
    used = []
    for step in reversed(steps):
        if id(step.result) in needed:
            needed.update(id(operand) for operand in step.operands)
            used.append(step)
    return used[::-1]


def _assign_outputs(
    steps: Sequence[_KernelCall], inputs: Sequence[_Value], outputs: Sequence[_Value], overwrites: Mapping[int, int]
) -> list[tuple[_Value, str]]:
    """Name the outputs; return the outputs that need a register, with the names of the arrays to which they are copied.

    An output may overwrite an input after the last step that reads the input.
    """
    producers = {id(step.result): index for index, step in enumerate(steps)}
    kept = []
    for number, value in enumerate(outputs):
        if number not in overwrites:
            value.name = f"o{number}"
            continue
        at = producers[id(value)]
        step, last_use = steps[at], inputs[overwrites[number]].last_use
        if last_use < at or (last_use == at and step.in_place):
            value.name = f"o{number}"
        else:
            kept.append((value, f"o{number}"))
            value.last_use = len(steps)
    return kept


def _assign_registers(steps: Sequence[_KernelCall]) -> dict[str, Temporary]:
    """Assign a register to each intermediate value; reuse registers whose values are dead."""
    temporaries: dict[str, Temporary] = {}
    free: dict[tuple[str, bool], list[str]] = {}
    for index, step in enumerate(steps):
        dying = [
            operand
            for operand in {id(operand): operand for operand in step.operands}.values()
            if operand.name in temporaries and operand.last_use == index
        ]
        if step.in_place:
            _release(dying, free)
        if not step.result.name:
            _take_register(step.result, free, temporaries)
        if not step.in_place:
            _release(dying, free)
    return temporaries


def _release(values: Sequence[_Value], free: dict[tuple[str, bool], list[str]]) -> None:
    for value in values:
        free.setdefault((value.dtype, value.is_number), []).append(value.name)


def _take_register(value: _Value, free: dict[tuple[str, bool], list[str]], temporaries: dict[str, Temporary]) -> None:
    available = free.get((value.dtype, value.is_number))
    if available:
        value.name = available.pop()
        return
    value.name = f"t{len(temporaries)}"
    temporaries[value.name] = Temporary(len(temporaries), np.dtype(value.dtype), value.is_number)


def _line(builder: _Builder, index: int, step: _KernelCall) -> str:
    kernel = f"f{index}"
    builder.names[kernel] = step.function
    # Pass `out` by keyword, because NumPy 2.5's maximum and minimum take no third positional argument.
    out = "out=" if isinstance(step.function, np.ufunc) else ""
    return f"{kernel}({', '.join([operand.name for operand in step.operands])}, {out}{step.result.name})"
