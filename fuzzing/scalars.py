"""Computes random Composites with NumPy, like the first tier, and with their C code, and compares the results.

In an *open* Composite, every step is an output. A step's result is compared for elements whose operands are equal in
NumPy and in C. In an *exact* Composite, IEEE 754 defines each step exactly, so both results must be equal. Elements
with an undefined result in C are not compared.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import theano
from theano import scalar as ts
from theano.compile.io import In
from theano.gof.utils import MethodNotDefined
from theano.scalar import basic_scipy as special
from theano.tensor import TensorType
from theano.tensor.elemwise import Elemwise, mul_without_zeros
from theano.tensor.nnet import sigm
from theano.tensor.nnet.nnet import softsign
from theano.tensor.xlogx import scalar_xlogx, scalar_xlogy0

from fuzzing.runner import End, run_chunks, run_worker
from optdb.host.theano.vectorized.registry import function_of

__all__ = ["Case", "Differs", "check", "draw_case", "run"]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS, *FLOATS)

_CASTS = tuple(ts.Cast(ts.get_scalar_type(name)) for name in dict.fromkeys(DTYPES))
#: Ops whose results are defined by IEEE 754 or by integer arithmetic.
EXACT: dict[int, tuple[Any, ...]] = {
    1: (
        *(ts.isnan, ts.isinf, ts.invert, ts.identity, ts.abs_, ts.sgn, ts.ceil, ts.floor, ts.trunc, ts.neg, ts.inv),
        *(ts.round_half_to_even, ts.round_half_away_from_zero, ts.sqr, ts.sqrt, *_CASTS),
    ),
    2: (
        *(ts.lt, ts.gt, ts.le, ts.ge, ts.eq, ts.neq, ts.or_, ts.xor, ts.and_, ts.maximum, ts.minimum, ts.add, ts.mul),
        *(ts.sub, ts.true_div, ts.int_div, ts.mod, ts.second, mul_without_zeros),
    ),
    3: (ts.add, ts.mul, ts.switch, ts.clip, ts.inopenrange, ts.inclosedrange),
}
#: Ops that libraries compute with an error of a few units in the last place.
ROUNDED: dict[int, tuple[Any, ...]] = {
    1: (
        *(ts.log, ts.log2, ts.log10, ts.log1p, ts.exp, ts.exp2, ts.expm1, ts.deg2rad, ts.rad2deg, ts.cos, ts.arccos),
        *(ts.sin, ts.arcsin, ts.tan, ts.arctan, ts.cosh, ts.arccosh, ts.sinh, ts.arcsinh, ts.tanh, ts.arctanh),
        *(special.erf, special.erfc, special.gamma, special.gammaln, special.psi, special.tri_gamma),
        *(special.j0, special.j1, sigm.scalar_sigmoid, sigm.scalar_softplus, sigm.ultra_fast_scalar_sigmoid),
        *(softsign.scalar_op, scalar_xlogx),
    ),
    2: (ts.pow, ts.arctan2, scalar_xlogy0),
    3: (),
}

#: The relative tolerance for `ROUNDED` ops, by the widest float dtype of operands and result.
_TOLERANCES = {"float32": 3e-6, "float64": 1e-12}
#: The tolerance for ops that C code computes with short series.
_SHORT_SERIES = 1e-7


class Differs(AssertionError):
    """The result of the first tier differs from the result of C code."""


@dataclass(frozen=True)
class Step:
    """A scalar op, and the indices of its operands among the inputs and the earlier steps."""

    op: Any
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A Composite and the arrays that it is applied to; `str` lists the steps."""

    dtypes: tuple[str, ...]
    steps: tuple[Step, ...]
    #: Indices of the steps that are outputs.
    outputs: tuple[int, ...]
    #: Maps the index of an output that overwrites an input to the index of the input.
    overwrites: dict[int, int]
    #: For each input, which dimensions are broadcastable.
    patterns: tuple[tuple[bool, ...], ...]
    arrays: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        described = zip(self.dtypes, self.patterns, self.arrays, strict=True)
        lines = [f"v{i}: {dtype} {array.shape} {array.strides} {p}" for i, (dtype, p, array) in enumerate(described)]
        count = len(self.dtypes)
        lines += [f"v{count + i} = {step.op}{step.operands}" for i, step in enumerate(self.steps)]
        return "\n".join([*lines, f"outputs {[count + i for i in self.outputs]}, written over {self.overwrites}"])

    @property
    def composite(self) -> Any:
        """The Composite."""
        values = self.values()
        return ts.Composite(values[: len(self.dtypes)], [values[len(self.dtypes) + i] for i in self.outputs])

    def values(self) -> list[Any]:
        """Return new scalar variables for the inputs and the steps."""
        values = [ts.get_scalar_type(dtype)() for dtype in self.dtypes]
        for step in self.steps:
            values.append(step.op.make_node(*(values[i] for i in step.operands)).outputs[0])
        return values

    def node(self) -> Any:
        """Return an Elemwise node that computes the Composite."""
        types = [TensorType(dtype, pattern) for dtype, pattern in zip(self.dtypes, self.patterns, strict=True)]
        return Elemwise(self.composite, self.overwrites).make_node(*(kind() for kind in types))

    def copies(self) -> list[np.ndarray]:
        """Return copies of the arrays with the same layouts."""
        return [_relaid(array) for array in self.arrays]


def _relaid(array: np.ndarray) -> np.ndarray:
    """Return a copy of an array that has the same strides."""
    if not array.size or 0 in array.strides:
        return array.copy() if not array.size else array
    low = sum(min(0, stride * (length - 1)) for stride, length in zip(array.strides, array.shape, strict=True))
    high = sum(max(0, stride * (length - 1)) for stride, length in zip(array.strides, array.shape, strict=True))
    buffer = np.zeros(high - low + array.itemsize, np.uint8)
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, buffer, -low, array.strides)
    copy[...] = array
    return copy


# Drawing


def _values(rng: np.random.RandomState, dtype: str, shape: tuple[int, ...], is_divisor: bool) -> np.ndarray:
    """Draw an array of ordinary values and special values of a dtype."""
    if dtype == "bool":
        drawn = np.ones(shape, bool) if is_divisor else rng.randint(0, 2, shape).astype(bool)
        return np.asarray(drawn)
    if dtype.startswith("float"):
        limits = np.finfo(dtype)
        special_values: list[Any] = [0, -0.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 1, -1, 2]
        special_values += [limits.max, limits.tiny, -limits.tiny / 4]
        ordinary = rng.standard_normal(shape) * rng.choice([0.3, 2, 30, 1e6], shape)
    else:
        whole = np.iinfo(dtype)
        special_values = [0, 1, 2, 3, whole.max, whole.max - 1, whole.min, whole.min + 1, whole.max // 2]
        ordinary = rng.randint(0 if dtype.startswith("u") else -20, 21, shape)
    chosen = np.asarray(special_values, dtype)[rng.randint(0, len(special_values), shape)]
    values = np.where(rng.random_sample(shape) < 0.5, chosen, np.asarray(ordinary).astype(dtype))
    if is_divisor and not dtype.startswith("float"):
        # Dividing the smallest integer by -1 in C ends the process.
        values = np.where((values == 0) | (values == np.asarray(-1).astype(dtype)), 3, values)
    return np.asarray(values).astype(dtype)


def _laid_out(rng: np.random.RandomState, array: np.ndarray, is_overwritten: bool) -> np.ndarray:
    """Return the same values in a layout: C, Fortran, reversed, every second element, columns, or repeated."""
    layouts = ["C", "C", "Fortran", "reversed", "strided", "columns", *([] if is_overwritten else ["repeated"])]
    layout = layouts[rng.randint(len(layouts))]
    if not array.ndim or layout == "C":
        return np.ascontiguousarray(array).reshape(array.shape)
    if layout == "Fortran":
        return np.asfortranarray(array)
    if layout == "reversed":
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "strided":
        return np.repeat(array, 2, -1)[..., ::2]
    if layout == "columns":
        return np.repeat(array, 2, 0)[::2]
    return np.broadcast_to(array[:1], array.shape)


def _is_divided(op: Any) -> bool:
    return op in (ts.int_div, ts.mod)


def _applied(op: Any, operands: Sequence[Any]) -> Any:
    """Return the output variable of a scalar op; None if the op rejects the operands, or lacks C code for them."""
    try:
        (out,) = op.make_node(*operands).outputs
        op.c_code(out.owner, "n", ["x"] * len(operands), ["z"], {"fail": "", "id": "0"})
    except (TypeError, NotImplementedError, MethodNotDefined, ts.ComplexError):
        return None
    return out if out.type.dtype in DTYPES else None


def _draw_steps(rng: np.random.RandomState, dtypes: Sequence[str], divisors: int, pool: Any, count: int) -> list[Step]:
    """Draw steps; the divisor of an integer division or a remainder is always one of the last `divisors` inputs."""
    values = [ts.get_scalar_type(dtype)() for dtype in dtypes]
    steps: list[Step] = []
    while len(steps) < count:
        arity = rng.choice([1, 2, 2, 2, 3])
        ops = pool[arity]
        op = ops[rng.randint(len(ops))]
        operands = [rng.randint(len(values)) for _ in range(arity)]
        if _is_divided(op):
            operands[1] = rng.randint(len(dtypes) - divisors, len(dtypes))
        step = Step(op, tuple(operands))
        # Exclude equal steps, because Theano's C code sets only one of two equal outputs. Exclude a second fast
        # sigmoid, because Theano's C code declares the same variable for each one.
        is_second = op is sigm.ultra_fast_scalar_sigmoid and any(other.op is op for other in steps)
        out = None if step in steps or is_second else _applied(op, [values[i] for i in operands])
        if out is not None:
            steps.append(step)
            values.append(out)
    return steps


_SHAPES = [(), (1,), (7,), (40,), (200,), (3, 5), (0, 4), (2, 3, 4), (130, 140)]


def draw_case(rng: np.random.RandomState, is_open: bool) -> Case:
    """Draw a Composite and its arrays; if `is_open` is true, all steps are outputs."""
    divisors = 2
    dtypes = [DTYPES[i] for i in rng.randint(0, len(DTYPES), rng.randint(1, 4))]
    if rng.randint(2):
        dtypes = [dtypes[0]] * len(dtypes)
    dtypes += [dtypes[0], DTYPES[rng.randint(len(DTYPES))]]
    pool = {n: EXACT[n] + ROUNDED[n] for n in EXACT} if is_open else EXACT
    steps = _draw_steps(rng, dtypes, divisors, pool, rng.randint(3, 13))
    shape = (200,) if is_open else _SHAPES[rng.randint(len(_SHAPES))]
    outputs = range(len(steps)) if is_open else sorted({*rng.randint(0, len(steps), rng.randint(1, 4)), len(steps) - 1})
    patterns = [tuple(bool(rng.randint(4) == 0 and not is_open) for _ in shape) for _ in dtypes]
    overwrites = {} if is_open else _draw_overwrites(rng, dtypes, steps, list(outputs), patterns)
    arrays = []
    for index, (dtype, pattern) in enumerate(zip(dtypes, patterns, strict=True)):
        lengths = tuple(1 if is_broadcast else length for is_broadcast, length in zip(pattern, shape, strict=True))
        array = _values(rng, dtype, lengths, index >= len(dtypes) - divisors)
        arrays.append(array if is_open else _laid_out(rng, array, index in overwrites.values()))
    return Case(tuple(dtypes), tuple(steps), tuple(map(int, outputs)), overwrites, tuple(patterns), tuple(arrays))


def _draw_overwrites(
    rng: np.random.RandomState,
    dtypes: Sequence[str],
    steps: Sequence[Step],
    outputs: Sequence[int],
    patterns: list[tuple[bool, ...]],
) -> dict[int, int]:
    """Draw outputs that overwrite inputs; change `patterns` so that the overwritten inputs are not broadcastable."""
    case = Case(tuple(dtypes), tuple(steps), tuple(outputs), {}, (), ())
    values = case.values()
    overwrites: dict[int, int] = {}
    for position, step in enumerate(outputs):
        dtype = values[len(dtypes) + step].type.dtype
        # Theano's C code would overwrite the input before later steps read it.
        done = _ancestors(steps, step, len(dtypes))
        read_later = {i for at, other in enumerate(steps) if at not in done for i in other.operands}
        taken = {*overwrites.values(), *read_later}
        free = [i for i, other in enumerate(dtypes) if other == dtype and i not in taken]
        if free and rng.randint(2):
            overwrites[position] = free[rng.randint(len(free))]
            patterns[overwrites[position]] = (False,) * len(patterns[0])
    return overwrites


def _ancestors(steps: Sequence[Step], step: int, inputs: int) -> set[int]:
    """Return a step and the steps that it depends on."""
    found, left = set(), [step]
    while left:
        at = left.pop()
        if at not in found:
            found.add(at)
            left += [i - inputs for i in steps[at].operands if i >= inputs]
    return found


# Comparing


def _fits(value: np.ndarray, dtype: str) -> np.ndarray:
    """Return a mask: true where the integer part of a float is in the range of an integer dtype."""
    limits = np.iinfo(dtype)
    # Compare with `<`, because floats cannot represent the largest 64-bit integers.
    return np.isfinite(value) & (value > float(limits.min) - 1) & (value < float(limits.max))


def defined(op: Any, operands: Sequence[np.ndarray], dtype: str) -> np.ndarray:
    """Return a mask: true where the C language defines the result of a scalar op."""
    x, *rest = operands
    everywhere = np.ones(x.shape, bool)
    if isinstance(op, ts.Cast) and x.dtype.kind == "f" and dtype.startswith(("int", "uint")):
        return _fits(x, dtype)
    if isinstance(op, ts.Pow) and np.dtype(dtype).kind in "iu":
        # C computes an integer power as a double, and converts the result.
        exact = x.astype("float64") ** rest[0]
        in_double = _is_in_double(x) & _is_in_double(rest[0])
        return _fits(exact, dtype) & (np.abs(exact) < 2**53) & in_double
    if isinstance(op, special.Gamma | special.GammaLn):
        return (x > 0) | (x != np.floor(x)) | np.isnan(x)  # the sign at a pole differs between libraries
    if isinstance(op, special.Psi | special.TriGamma):
        return x > 0  # C returns 0 for other numbers
    if isinstance(op, special.J0 | special.J1):
        return np.isfinite(x) & (np.abs(x) < 1e4)  # the function's larger zeros are inexact in C and in NumPy
    if isinstance(op, ts.Trunc) and x.dtype.kind == "i":
        return x > np.iinfo(x.dtype).min  # C negates negative integers
    if _is_divided(op):
        return _is_division_defined(x, rest[0], dtype)
    if op in (ts.maximum, ts.minimum):
        # C converts the result to a double.
        return np.logical_and.reduce([_is_in_double(array) for array in operands])
    return everywhere


def _is_division_defined(x: np.ndarray, y: np.ndarray, dtype: str) -> np.ndarray:
    """Return a mask: true where C divides like Python; Theano's C code may misread negative integers as unsigned."""
    discrete = x.dtype.kind != "f" and y.dtype.kind != "f"
    where = np.full(x.shape, not (discrete and dtype.startswith("float")))
    kinds = {x.dtype.kind, y.dtype.kind}
    for array in (x, y):
        if array.dtype.kind == "i":
            where = where & (array > np.iinfo(array.dtype).min) & ((array >= 0) | ("u" not in kinds))
    return where


def _is_in_double(array: np.ndarray) -> np.ndarray:
    if array.dtype.itemsize < 8 or array.dtype.kind == "f":
        return np.ones(array.shape, bool)
    return (array <= 2**53) & ((array.dtype.kind == "u") | (array >= -(2**53)))


def by_numpy(case: Case) -> list[np.ndarray]:
    """Compute a case with NumPy functions, as the first tier does."""
    node = case.node()
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    compute = function_of(node)
    assert compute is not None  # the first tier supports every op that is drawn
    compute(case.copies(), storage)
    return [cell[0] for cell in storage]


def by_c(cases: Sequence[Case]) -> list[list[np.ndarray]]:
    """Compute cases with C code that is compiled together."""
    nodes = [case.node() for case in cases]
    inputs = [
        In(var, borrow=True, mutable=index in case.overwrites.values())
        for case, node in zip(cases, nodes, strict=True)
        for index, var in enumerate(node.inputs)
    ]
    mode = theano.Mode("cvm", None)
    outputs = [out for node in nodes for out in node.outputs]
    function = theano.function(inputs, outputs, mode=mode, accept_inplace=True, on_unused_input="ignore")
    results = iter(function(*(array for case in cases for array in case.copies())))
    return [[next(results) for _ in node.outputs] for node in nodes]


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a mask: true where two arrays have the same number, also the same sign of zero, or both have NaN."""
    if a.dtype.kind != "f":
        return a == b
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def _close(op: Any, a: np.ndarray, b: np.ndarray, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Return a mask: true where two results of an op agree within the tolerance for the op."""
    equal = (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else a == b
    if a.dtype.kind != "f" or op in EXACT[len(operands)]:
        return equal
    dtypes = {str(array.dtype) for array in (a, *operands)}
    tolerance = _TOLERANCES["float32" if "float32" in dtypes else "float64"]
    if isinstance(op, special.Psi | special.J0 | special.J1 | special.Gamma | special.GammaLn):
        tolerance = max(tolerance, _SHORT_SERIES)
    # C's float functions may flush subnormal numbers to zero.
    return equal | (np.abs(a - b) <= tolerance * np.maximum(np.abs(a), np.abs(b)) + np.finfo(a.dtype).tiny)


def check(case: Case, expected: Sequence[np.ndarray]) -> int:
    """Compare a case's results with those of C code; return how many numbers were compared, or raise `Differs`."""
    found = by_numpy(case)
    for position, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            raise Differs(
                f"{case}\noutput {position}: {ours.dtype} {ours.shape} by NumPy, {theirs.dtype} {theirs.shape} by C"
            )
    with np.errstate(all="ignore"):
        return (
            _check_open(case, found, expected) if len(found) == len(case.steps) else _check_exact(case, found, expected)
        )


def _check_open(case: Case, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> int:
    arrays = [np.broadcast_to(array, found[0].shape) for array in case.arrays]
    ours, theirs, compared = [*arrays, *found], [*arrays, *expected], 0
    for index, step in enumerate(case.steps, len(case.dtypes)):
        operands = [theirs[i] for i in step.operands]
        where = defined(step.op, operands, str(theirs[index].dtype))
        for i in step.operands:
            where = where & _same(ours[i], theirs[i])
        wrong = where & ~_close(step.op, ours[index], theirs[index], operands)
        if wrong.any():
            raise Differs(_described(case, index, wrong, ours, theirs))
        compared += int(where.sum())
    return compared


def _check_exact(case: Case, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> int:
    open_case = Case(case.dtypes, case.steps, tuple(range(len(case.steps))), {}, case.patterns, case.arrays)
    steps = by_numpy(open_case)
    values = [*np.broadcast_arrays(*case.arrays, steps[0])[:-1], *steps]
    clear = [np.ones(steps[0].shape, bool) for _ in case.dtypes]
    for step, value in zip(case.steps, steps, strict=True):
        operands = [values[i] for i in step.operands]
        is_clear = defined(step.op, operands, str(value.dtype))
        clear.append(np.logical_and.reduce([is_clear, *(clear[i] for i in step.operands)]))
    compared = 0
    for position, index in enumerate(case.outputs, 0):
        index += len(case.dtypes)
        mine, other, where = found[position], expected[position], clear[index]
        equal = (mine == other) | ((mine != mine) & (other != other))
        if (where & ~equal).any():
            raise Differs(_described(case, index, where & ~equal, [*values[:index], mine], [*values[:index], other]))
        compared += int(where.sum())
    return compared


def _described(case: Case, index: int, wrong: np.ndarray, ours: Sequence[Any], theirs: Sequence[Any]) -> str:
    at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
    operands = case.steps[index - len(case.dtypes)].operands
    shown = ", ".join(f"v{i} = {theirs[i][at]!r} ({theirs[i].dtype})" for i in operands)
    return (
        f"{case}\nv{index} at {at} of {shown}: {ours[index][at]!r} by NumPy, {theirs[index][at]!r} by C "
        f"({ours[index].dtype}); {int(wrong.sum())} in all"
    )


def run(number: int, cases: int, report: Callable[[str], None] | None = None) -> int:
    """Compare random Composites; return how many numbers were compared. Call `report` with differences."""
    rng = np.random.RandomState(number)
    drawn = [draw_case(rng, is_open=index % 2 == 0) for index in range(cases)]
    compared = 0
    for case, expected in zip(drawn, by_c(drawn), strict=True):
        try:
            compared += check(case, expected)
        except Differs as difference:
            if report is None:
                raise
            report(str(difference))
    return compared


def _run(number: int, cases: int, timeout: float) -> End:
    options = ("--worker", "--seed", number, "--cases", cases)
    # Disable optimization, because optimized code may compute a product and a sum with one instruction, which rounds
    # differently.
    flags = ",".join(filter(None, [os.environ.get("THEANO_FLAGS", ""), "gcc.cxxflags=-O0,optdb.clinker=True"]))
    return run_worker("fuzzing.scalars", options, timeout, {"THEANO_FLAGS": flags})


@click.command()
@click.option("--rounds", default=50, show_default=True, help="Number of rounds, each in a process of its own.")
@click.option(
    "--cases", default=30, show_default=True, help="Number of Composites in a round, which are compiled together."
)
@click.option("--seed", "number", default=0, show_default=True, help="Seed of the random numbers.")
@click.option(
    "--processes", default=1, show_default=True, help="Number of rounds at a time; compilers use all processors."
)
@click.option("--timeout", default=900.0, show_default=True, help="Timeout of a process, in seconds.")
@click.option("--worker", is_flag=True, hidden=True)
def main(rounds: int, cases: int, number: int, processes: int, timeout: float, worker: bool) -> None:
    """Compute random Composites with NumPy, like the first tier, and with their C code, and compare the results.

    The exit status is 1 if a number differs. The same seed gives the same Composites.
    """
    if worker:
        differences: list[str] = []
        compared = run(number, cases, differences.append)
        print("\n\n".join(differences) or f"seed {number}: {compared} numbers compared")
        raise SystemExit(1 if differences else 0)
    failures = 0
    examine = functools.partial(_run, cases=cases, timeout=timeout)
    for _, end in run_chunks(range(number, number + rounds), examine, processes):
        failures += bool(end.trouble)
        click.echo((end.trouble or end.printed).strip())
    click.echo(f"{rounds} rounds of {cases} Composites, {failures} with a difference")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
