"""Translates scalar programs to OpenCL C statements, which compute vectors if the width is above one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from optdb.codegen.scalars.expressions import NotInVectors, ScalarEmitter, VectorEmitter, expression
from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.program import Number, Scalar, ScalarProgram
from optdb.codegen.scalars.types import NoCode, c_type, literal


@dataclass(frozen=True)
class ScalarCode:
    """The OpenCL C that computes one element, or one vector of elements."""

    helpers: str
    #: Statements that assign the outputs, which are declared elsewhere.
    statements: str
    #: All dtypes of inputs, outputs and intermediate values, which a device must support.
    dtypes: frozenset[str]
    #: Hoisted statements, which must precede the loop over elements.
    once: str
    #: Hoisted statements, which must be executed for each row.
    by_row: str


@dataclass(frozen=True)
class RowInputs:
    """What is known about a program's inputs if the program runs along rows."""

    #: Names of inputs that are the same for all elements of a row.
    constant: Collection[str] = ()
    #: Maps the names of integers that increase by one along a row to an expression for the first integer of a vector.
    counting: Mapping[str, str] = field(default_factory=dict)
    #: Returns a call that reads a vector of neighbours of a dtype, given the address of the first one.
    read: Callable[[str, str], str] = lambda dtype, address: ""


def scalar_code(
    program: ScalarProgram,
    inputs: Sequence[str],
    outputs: Sequence[str],
    uniform: Collection[str] = (),
    width: int = 1,
    helpers: Helpers | None = None,
    wrong_functions: frozenset[str] = frozenset(),
    rows: RowInputs = RowInputs(),
) -> ScalarCode:
    """Return the OpenCL C of a program, given the names of its inputs and outputs; raise NoCode if a step has no code.

    Inputs named in `uniform` are the same for all elements. With a width above one, the other inputs and the outputs
    are vectors, except for inputs that `rows` names as constant. `helpers` collects called functions. `wrong_functions`
    are the scalar ops whose vector functions are wrong in the driver; other code replaces them.
    """
    writer = _CodeWriter(uniform, width, helpers, wrong_functions, rows)
    results = program.evaluate(list(zip(inputs, program.dtypes, strict=True)), writer.step, _constant)
    writer.flush()
    for name, (value, dtype) in zip(outputs, results, strict=True):
        spread = width > 1 and writer.is_uniform(value)
        writer.lines.append(f"{name} = {f'({c_type(dtype)}{width})({value})' if spread else value};")
    used = frozenset(writer.used.union(program.dtypes, program.out_dtypes))
    hoisted = "\n".join(writer.once), "\n".join(writer.by_row)
    return ScalarCode(writer.helpers.source, "\n".join(writer.lines), used, *hoisted)


@functools.lru_cache(maxsize=4096)
def computed_dtypes(program: ScalarProgram) -> frozenset[str]:
    """Return all dtypes in which a program computes; raise NoCode if there is no OpenCL C for the program."""
    names = [f"i{i}" for i in range(len(program.dtypes))], [f"o{i}" for i in range(len(program.results))]
    return scalar_code(program, *names).dtypes


def _constant(number: Number) -> tuple[str, str]:
    return literal(number.value, number.dtype), number.dtype


class _CodeWriter:
    """Writes the steps of programs one after another, and gives each result a unique name."""

    def __init__(
        self,
        uniform: Collection[str],
        width: int,
        helpers: Helpers | None,
        wrong_functions: frozenset[str],
        rows: RowInputs,
    ) -> None:
        self.lines: list[str] = []
        self.once: list[str] = []
        self.by_row: list[str] = []
        self.helpers = helpers or Helpers()
        self.used: set[str] = set()
        self._uniform = set(uniform)
        self._constant = set(rows.constant)
        self._counting = dict(rows.counting)
        self._read_neighbours = rows.read
        self._hoists = bool(uniform) or bool(rows.constant) or width > 1
        self._width = width
        self._wrong_functions = wrong_functions
        self._names = 0
        self._pending: list[str] = []
        self._read: dict[str, str] = {}
        self._made: dict[str, str] = {}

    def step(self, scalar: Scalar, args: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """Write the statement that applies a scalar op to (expression, dtype) pairs; return the pair of the result."""
        values, dtypes = [value for value, _ in args], [dtype for _, dtype in args]
        for dtype in dtypes:
            c_type(dtype)
        self.used.update((*dtypes, scalar.dtype))
        name = f"t{self._names}"
        self._names += 1
        emitter = ScalarEmitter(scalar, dtypes, values, self.helpers, self.used)
        if self._hoists and all(map(self.is_uniform, values)):
            self._hoist(name, values, _declared(name, emitter))
        elif self._width == 1:
            self.lines.append(_declared(name, emitter))
        elif emitter.is_complex:
            raise NoCode("complex numbers are not computed in vectors")
        else:
            self._vector(name, emitter)
        return name, scalar.dtype

    def _hoist(self, name: str, values: Sequence[str], line: str) -> None:
        is_constant = not self._constant.isdisjoint(values)
        (self._constant if is_constant else self._uniform).add(name)
        (self.by_row if is_constant else self.once).append(line)

    def is_uniform(self, value: str) -> bool:
        """Return whether a value is the same for all elements of a row.

        Such values are uniform inputs, inputs that are constant in a row, literals, and expressions of these.
        """
        is_literal = not value.isidentifier() or value in ("NAN", "INFINITY")
        return is_literal or value in self._uniform or value in self._constant

    def flush(self) -> None:
        """Write the pending statements in a loop over the lanes of vectors."""
        if self._pending:
            types = {**self._read, **self._made}
            width = self._width
            self.lines += [
                *[f"{kind}{width} {name};" for name, kind in self._made.items()],
                "{",
                *[f"union {{ {kind}{width} v; {kind} s[{width}]; }} {name}_u;" for name, kind in types.items()],
                *[f"{name}_u.v = {name};" for name in self._read],
                f"for (int l = 0; l < {width}; ++l) {{",
                *[f"const {kind} {name}_s = {name}_u.s[l];" for name, kind in self._read.items()],
                *self._pending,
                *[f"{name}_u.s[l] = {name}_s;" for name in self._made],
                "}",
                *[f"{name} = {name}_u.v;" for name in self._made],
                "}",
            ]
        self._pending, self._read, self._made = [], {}, {}

    def _first_of(self, emitter: ScalarEmitter) -> str | None:
        """Return the first of the integers that an addition computes if they increase by one, else None."""
        if emitter.scalar.name != "Add" or emitter.out != "int64":
            return None
        counting = [self._counting[arg] for arg in emitter.args if arg in self._counting]
        others = [arg for arg in emitter.args if arg not in self._counting]
        return " + ".join([*counting, *others]) if len(counting) == 1 and all(map(self.is_uniform, others)) else None

    def _vector(self, name: str, emitter: ScalarEmitter) -> None:
        first = self._first_of(emitter)
        if first is not None:
            self._counting[name] = first
        if emitter.scalar.name == "Element" and emitter.args[0] in self._counting:
            index = f"{self._counting[emitter.args[0]]} + {emitter.scalar['offset']}"
            value = self._read_neighbours(emitter.out, f"&{emitter.scalar['array']}_at[{index}]")
            self.lines.append(f"const {emitter.type()}{self._width} {name} = {value};")
            return
        try:
            is_wrong = emitter.scalar.name in self._wrong_functions
            lanes = VectorEmitter(**vars(emitter), width=self._width, is_uniform=self.is_uniform, is_wrong=is_wrong)
            line = _declared(name, lanes)
        except NotInVectors:
            self._lane_by_lane(name, emitter)
            return
        if any(arg in self._made for arg in emitter.args):
            self.flush()
        self.lines.append(line)

    def _lane_by_lane(self, name: str, emitter: ScalarEmitter) -> None:
        for arg, dtype in zip(emitter.args, emitter.dtypes, strict=True):
            if not self.is_uniform(arg) and arg not in self._made:
                self._read[arg] = c_type(dtype)
        each = [arg if self.is_uniform(arg) else f"{arg}_s" for arg in emitter.args]
        self._pending.append(_declared(f"{name}_s", replace(emitter, args=each)))
        self._made[name] = c_type(emitter.out)


def _declared(name: str, emitter: ScalarEmitter) -> str:
    return f"const {emitter.type()} {name} = {expression(emitter)};"
