"""Scalar ops on several numbers at once, in OpenCL C's vector types.

A processor computes the functions of a vector type many times faster than one number after
the other, and its compiler does not turn the one into the other. :class:`LaneStep` is a
:class:`ScalarStep` whose expressions are of vectors. Where an entry of the scalar table holds for
vectors as it is, it is used; the entries here are for what differs: comparisons give masks,
and choices are by masks. An op that has neither is computed lane by lane, see :mod:`code`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optdb.codegen.scalars.step import ENTRIES, ScalarStep
from optdb.codegen.scalars.types import NoCode, c_type, is_float
from optdb.host import scalars as host

#: Entries of the scalar table that hold for vectors of floats; by their width they call what is built in.
_AS_THEY_ARE = {
    *(host.ArcCos, host.ArcCosh, host.ArcSin, host.ArcSinh, host.ArcTan, host.ArcTan2, host.ArcTanh),
    *(host.Ceil, host.Cosh, host.Erf, host.Erfc, host.Exp, host.Exp2, host.Expm1, host.Floor),
    *(host.Log, host.Log10, host.Log1p, host.Log2, host.RoundHalfAwayFromZero, host.RoundHalfToEven),
    *(host.Sinh, host.Sqrt, host.Tanh, host.Trunc),
    *(host.Add, host.Mul, host.Sub, host.Neg, host.Sqr, host.Inv, host.Abs),
    *(host.ScalarSigmoid, host.ScalarSoftsign),
}


@dataclass
class LaneStep(ScalarStep):
    """One application of a scalar op to vectors.

    Parameters
    ----------
    width : int
        How many numbers a vector has.
    is_uniform : callable
        Tells of an input whether it is one number for all lanes, and no vector.
    """

    width: int
    is_uniform: Callable[[str], bool]

    def inputs(self, dtype: str | None = None) -> list[str]:
        """Return the inputs as vectors, converted to `dtype`; to the output's if not given."""
        dtype = dtype or self.out
        self.used.add(dtype)
        return [self.vector(i, dtype) for i in range(len(self.args))]

    def vector(self, i: int, dtype: str) -> str:
        """Return an input as a vector of `dtype`."""
        arg, own = self.args[i], self.dtypes[i]
        if self.is_uniform(arg):
            arg = f"({self.type(own)})({arg})"
        return f"({convert_lanes(arg, own, dtype, self.width)})"

    def type(self, dtype: str) -> str:
        """Return the vector type for a dtype."""
        return f"{c_type(dtype)}{self.width}"

    def mask(self, dtype: str) -> str:
        """Return the type of the results of comparisons of a dtype."""
        return f"{_SIGNED[c_type(dtype)]}{self.width}"

    def truth(self, mask: str) -> str:
        """Return the result of a comparison as a vector of booleans."""
        return f"convert_uchar{self.width}(-({mask}))"


_SIGNED = {
    **{"uchar": "char", "char": "char", "ushort": "short", "short": "short", "uint": "int", "int": "int"},
    **{"ulong": "long", "long": "long", "float": "int", "double": "long"},
}
_UNSIGNED = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}

Entry = Callable[[LaneStep], str]


def lanes_expression(step: LaneStep) -> str | None:
    """Return the OpenCL C of one step on vectors; None if it has to be computed lane by lane."""
    entry = _ENTRIES.get(type(step.op))
    if entry is not None:
        return entry(step)
    if type(step.op) in _AS_THEY_ARE and is_float(step.out) and step.args:
        return ENTRIES[type(step.op)](step)
    return None


def convert_lanes(code: str, source: str, target: str, width: int) -> str:
    """Return `code`, a vector of dtype `source`, as one of dtype `target`, as `types.convert` does for a number."""
    if source == target or c_type(source) == c_type(target) != "uchar":
        return code
    if target == "bool":
        return f"convert_uchar{width}(-(({code}) != ({c_type(source)}{width})(0)))"
    name = f"{c_type(target)}{width}"
    if c_type(source) == c_type(target):
        return code
    if not is_float(source) or is_float(target) or target in ("int32", "int64"):
        return f"convert_{name}({code})"
    if target == "uint64":
        negative = f"convert_long{width}(({code}) < 0)"
        by_way = f"as_ulong{width}(convert_long{width}({code}))"
        return f"select(convert_ulong{width}({code}), {by_way}, {negative})"
    return f"convert_{name}(convert_{'long' if target == 'uint32' else 'int'}{width}({code}))"


def _arithmetic(operator: str, logical: str) -> Entry:
    def calculate(step: LaneStep) -> str | None:
        if not step.args:
            return None
        if step.out == "bool":
            return f" {logical} ".join(step.inputs("bool"))
        if is_float(step.out):
            return f" {operator} ".join(step.inputs())
        kind = c_type(step.out)
        if kind not in _UNSIGNED:
            return f" {operator} ".join(step.inputs())
        wide = f"as_{_UNSIGNED[kind]}{step.width}"
        return f"as_{kind}{step.width}({f' {operator} '.join(f'{wide}{arg}' for arg in step.inputs())})"

    return calculate


def _mul_without_zeros(step: LaneStep) -> str:
    x, y = step.inputs()
    none = f"({step.type(step.out)})(0)"
    return f"select(select({_arithmetic('*', '&')(step)}, {x}, {y} == {none}), {y}, {x} == {none})"


def _true_div(step: LaneStep) -> str:
    if any(is_float(dtype) for dtype in step.dtypes):
        return " / ".join(step.inputs())
    x, y = step.inputs("float64")
    return convert_lanes(f"{x} / {y}", "float64", step.out, step.width)


def _comparing(operator: str) -> Entry:
    def compare(step: LaneStep) -> str:
        x, y = step.inputs(host.upcast(*step.dtypes))
        return step.truth(f"{x} {operator} {y}")

    return compare


def _extreme(operator: str) -> Entry:
    def choose(step: LaneStep) -> str:
        x, y = step.inputs()
        first = f"({x} {operator} {y})"
        if is_float(step.out):  # what is not a number wins
            first += f" | ({x} != {x})"
        return f"select({y}, {x}, {first})"

    return choose


def _switch(step: LaneStep) -> str:
    condition, own = step.vector(0, step.dtypes[0]), step.dtypes[0]
    mask = f"({condition} != ({step.type(own)})(0))"
    if step.mask(own) != step.mask(step.out):
        mask = f"convert_{step.mask(step.out)}({mask})"
    return f"select({step.vector(2, step.out)}, {step.vector(1, step.out)}, {mask})"


def _clip(step: LaneStep) -> str:
    x, low, high = step.inputs()
    return f"select(select({x}, {high}, {x} > {high}), {low}, {x} < {low})"


def _second(step: LaneStep) -> str:
    return step.vector(1, step.out)


def _identity(step: LaneStep) -> str:
    return step.vector(0, step.out)


def _cast(step: LaneStep) -> str | None:
    if step.out == "float16" and step.dtypes[0] not in ("bool", "int8", "uint8", "float16"):
        return None  # it is rounded
    return step.vector(0, step.out)


def _softplus(step: LaneStep) -> str | None:
    if not is_float(step.out):
        return None
    (x,) = step.inputs()
    return f"select(log1p(exp({x})), {x}, {x} > 40)"


def _xlog(step: LaneStep) -> str | None:
    if not is_float(step.out):
        return None
    x, y = step.inputs() if len(step.args) > 1 else step.inputs() * 2
    return f"select({x} * log({y}), ({step.type(step.out)})(0), {x} == 0)"


def _circular(name: str, of_nothing: str) -> Entry:
    def call(step: LaneStep) -> str:
        (x,) = step.inputs()
        if c_type(step.out) != "float":
            return f"{name}({x})"
        # PoCL 3.1 is wrong about denormal numbers whose neighbours are huge.
        near = x if of_nothing == "x" else f"({step.type(step.out)})({of_nothing})"
        return f"select({name}({x}), {near}, fabs({x}) < FLT_MIN)"

    return call


def _pow(step: LaneStep) -> str | None:
    if not is_float(step.out):
        return None
    x, y = step.inputs()
    if c_type(step.out) == "float":
        return f"pow({x}, {y})"
    # PoCL 3.1 is wrong about powers of eight doubles, where they differ much.
    quarters = ["0123", "4567", "89ab", "cdef"][: step.width // 4]
    return f"({step.type(step.out)})({', '.join(f'pow({x}.s{q}, {y}.s{q})' for q in quarters)})"


_ENTRIES: dict[type, Callable[[LaneStep], str | None]] = {
    host.Add: _arithmetic("+", "|"),
    host.Mul: _arithmetic("*", "&"),
    host.MulWithoutZeros: _mul_without_zeros,
    host.Sub: _arithmetic("-", "^"),
    host.TrueDiv: _true_div,
    host.Pow: _pow,
    host.Sin: _circular("sin", "x"),
    host.Cos: _circular("cos", "1"),
    host.Tan: _circular("tan", "x"),
    host.EQ: _comparing("=="),
    host.NEQ: _comparing("!="),
    host.LT: _comparing("<"),
    host.LE: _comparing("<="),
    host.GT: _comparing(">"),
    host.GE: _comparing(">="),
    host.Maximum: _extreme(">="),
    host.Minimum: _extreme("<="),
    host.Switch: _switch,
    host.Clip: _clip,
    host.Second: _second,
    host.Identity: _identity,
    host.Conj: _identity,
    host.Cast: _cast,
    host.ScalarSoftplus: _softplus,
    host.XlogX: _xlog,
    host.XlogY0: _xlog,
}


def lane_by_lane(lines: list[str], inputs: dict[str, str], outputs: dict[str, str], width: int) -> list[str]:
    """Return statements that compute scalar statements for each lane.

    Parameters
    ----------
    lines : list of str
        Statements on one number each, which set ``NAME_s`` for each of `outputs`.
    inputs, outputs : dict
        Vectors that are read and made, by name, with the C type of a number in each.
    width : int
        How many lanes there are.

    Raises
    ------
    NoCode
        If there is no output.
    """
    if not outputs:
        raise NoCode("nothing to compute")
    declared = [f"{kind}{width} {name};" for name, kind in outputs.items()]
    unions = [
        f"union {{ {kind}{width} v; {kind} s[{width}]; }} {name}_u;" for name, kind in {**inputs, **outputs}.items()
    ]
    filled = [f"{name}_u.v = {name};" for name in inputs]
    reads = [f"const {kind} {name}_s = {name}_u.s[l];" for name, kind in inputs.items()]
    writes = [f"{name}_u.s[l] = {name}_s;" for name in outputs]
    loop = [f"for (int l = 0; l < {width}; ++l) {{", *reads, *lines, *writes, "}"]
    return [*declared, "{", *unions, *filled, *loop, *[f"{name} = {name}_u.v;" for name in outputs], "}"]
