"""Compares random convolutions and poolings on a device with the Python code of Theano's own ops.

If Theano's op returns a result, the device must return the same numbers in the same shape. If the op raises an error,
the device must raise an error that gives the reason.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import theano
from hypothesis import given, seed
from hypothesis import strategies as st
from theano.tensor import TensorType
from theano.tensor.nnet import abstract_conv
from theano.tensor.signal import pool

import optdb
from fuzzing.machines import chosen_settings
from fuzzing.profiles import kernels_option, replace_profile
from fuzzing.runner import End, options, run_chunks, run_worker, without_compiler
from optdb.codegen.convolve.geometry import axes_of

__all__ = ["Case", "compare", "convolutions", "poolings"]

#: Number of examples per process.
CHUNK = 200

#: The types of errors that a device may raise for arrays that do not match.
_CLEAR = (ValueError, TypeError, NotImplementedError, AssertionError)

_TOLERANCES = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-11}

_CONVOLUTIONS = {
    (2, "forward"): abstract_conv.AbstractConv2d,
    (2, "weights"): abstract_conv.AbstractConv2d_gradWeights,
    (2, "inputs"): abstract_conv.AbstractConv2d_gradInputs,
    (3, "forward"): abstract_conv.AbstractConv3d,
    (3, "weights"): abstract_conv.AbstractConv3d_gradWeights,
    (3, "inputs"): abstract_conv.AbstractConv3d_gradInputs,
}
_POOLS = {"pool": pool.Pool, "largest": pool.MaxPoolGrad, "average": pool.AveragePoolGrad}


@dataclass(frozen=True)
class Case:
    """One of Theano's ops and the arguments of a call; `str` returns the call."""

    kind: str
    op: Any
    #: The shapes of the arrays.
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    #: The op's integer arguments, which follow the arrays: the shape of a gradient, or windows, strides and pads.
    numbers: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        return f"{self.op} of {self.dtype} arrays {self.shapes}, {self.numbers}"

    def arrays(self) -> list[np.ndarray]:
        """Return the arrays: small integers, so that sums are exact.

        For the gradient of a maximum, all elements are different, because Theano's Python code also compares the
        maximum with elements beyond a window that begins in the padding.
        """
        rng = np.random.RandomState(sum(map(sum, self.shapes)))
        arrays = [rng.randint(-3, 4, shape).astype(self.dtype) for shape in self.shapes]
        if self.kind == "largest":
            x, gz = arrays
            x = rng.permutation(x.size).reshape(x.shape).astype(self.dtype)
            arrays = [x, self._largest(x, gz), gz]
        return arrays

    def _largest(self, x: np.ndarray, gz: np.ndarray) -> np.ndarray:
        """Return the result of max-pooling `x`, or zeros if the pooling raises an error."""
        forward = pool.Pool(ignore_border=self.op.ignore_border, mode="max", ndim=self.op.ndim)
        try:
            return performed(forward, [x, *self.host_numbers()])
        except (AssertionError, ValueError):
            return np.zeros_like(gz)

    def host_numbers(self) -> list[np.ndarray]:
        """Return the integers as arrays."""
        return [np.array(value, "int64") for value in self.numbers]


def performed(op: Any, arrays: list[np.ndarray]) -> np.ndarray:
    """Compute an op with its own Python code."""
    node = op.make_node(*[TensorType(array.dtype, (False,) * array.ndim)() for array in arrays])
    storage: list[list[Any]] = [[None]]
    params = getattr(op, "params_type", None)
    extra = [] if params is None else [op.get_params(node)]
    op.perform(node, list(arrays), storage, *extra)
    return storage[0][0]


def compare(case: Case, device: str = "auto") -> str:
    """Compute a case on a device and with Theano's op; return 'equal', or 'refused' if both raise an error."""
    arrays = case.arrays()
    expected: np.ndarray | Exception
    try:
        expected = performed(case.op, [*_wide(case, arrays), *case.host_numbers()])
        if case.kind in ("weights", "inputs") and expected.shape[-len(case.numbers[0]) :] != case.numbers[0]:
            raise ValueError(f"a result of shape {expected.shape}, but the declared shape is {case.numbers[0]}")
    except Exception as error:
        expected = error
    variables = [TensorType(array.dtype, (False,) * array.ndim)() for array in arrays]
    try:
        out = case.op(*variables, *case.host_numbers())
        function = theano.function(variables, out, mode=optdb.mode(device=device))
        seen = function(*arrays)
    except _CLEAR as error:
        assert isinstance(expected, Exception), f"{case}: the device raises {_brief(error)}"
        return "refused"
    if isinstance(expected, Exception):
        # Theano computes convolutions in three dimensions with SciPy, which rejects some empty arrays.
        assert case.kind == "inputs" and seen.ndim == 5 and not seen.size, f"{case}: {seen.shape}; stock: {expected!r}"
        return "refused"
    assert seen.dtype == case.dtype, f"{case}: {seen.dtype}"
    assert seen.shape == expected.shape, f"{case}: shape {seen.shape}, but Theano's is {expected.shape}"
    tolerance = _TOLERANCES[case.dtype]
    np.testing.assert_allclose(seen, expected.astype(case.dtype), tolerance, tolerance * 10, err_msg=str(case))
    return "equal"


def _brief(error: Exception) -> str:
    """Return an error's type and the first line of its message; Theano adds details about the node in other lines."""
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _wide(case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return the arrays for Theano, whose Python code does not convolve float16, so these become float32."""
    return [array.astype("float32") for array in arrays] if case.dtype == "float16" else arrays


def _tuples(number: int, low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(low, high)] * number)


def _paddings(dims: int) -> st.SearchStrategy[Any]:
    pad = st.integers(0, 2)
    either = st.one_of(pad, st.tuples(pad, pad)) if dims == 2 else pad
    return st.one_of(st.sampled_from(["valid", "half", "full"]), pad, st.tuples(*[either] * dims))


@st.composite
def convolutions(draw: Any) -> Case:
    """Draw a convolution or one of its gradients; in most cases, the shapes of the arrays match."""
    dims = draw(st.sampled_from([2, 2, 2, 3]))
    kind = draw(st.sampled_from(["forward", "weights", "inputs"]))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    unshared = dims == 2 and draw(st.integers(0, 3)) == 0
    # All sizes are small, and one in six is 0.
    some = st.sampled_from([1, 2, 3, 0, 1, 2])
    batch, channels, features = draw(some), draw(some), draw(some)
    # A GPU uses tiles for these numbers of channels or filters.
    if draw(st.integers(0, 2)) == 0:
        channels, features = draw(st.sampled_from([(1, 4), (2, 5), (8, 1), (9, 3), (3, 17)]))
    image, taps = draw(_tuples(dims, 0, 6)), draw(_tuples(dims, 0, 4))
    if draw(st.integers(0, 5)) == 0:
        image, taps = (1, *image[1:]), (1, *taps[1:])
    if draw(st.integers(0, 3)):
        image, taps = tuple(max(n, 1) for n in image), tuple(max(n, 1) for n in taps)
    parameters: dict[str, Any] = {
        "border_mode": draw(_paddings(dims)),
        "subsample": draw(st.one_of(st.just((1,) * dims), _tuples(dims, 1, 3))),
        "filter_dilation": draw(st.one_of(st.just((1,) * dims), _tuples(dims, 1, 3))),
        "filter_flip": draw(st.booleans()),
        "num_groups": groups,
    }
    if unshared:
        parameters["unshared"] = True
    border = _CONVOLUTIONS[dims, kind](**parameters).border_mode
    outs = axes_of(image, taps, border, parameters["subsample"], parameters["filter_dilation"])[-dims:]
    pixels = tuple(max(axis.out, 0) for axis in outs)
    x = (batch, channels * groups, *image)
    w = (features * groups, *(pixels if unshared else ()), channels, *taps)
    top = (batch, features * groups, *pixels)
    if draw(st.booleans()) and draw(st.booleans()):
        parameters["imshp"] = x
        parameters["kshp"] = w
    if kind == "forward" and draw(st.integers(0, 7)) == 0:
        axis = draw(st.integers(0, len(w) - 1))
        w = (*w[:axis], w[axis] + 1, *w[axis + 1 :])
        parameters.pop("imshp", None)
        parameters.pop("kshp", None)
    op = _CONVOLUTIONS[dims, kind](**parameters)
    dtype = draw(st.sampled_from(["float32", "float32", "float64", "float16"]))
    shapes = {"forward": (x, w), "weights": (x, top), "inputs": (w, top)}[kind]
    numbers = {"forward": (), "weights": (taps,), "inputs": (image,)}[kind]
    return Case(kind, op, shapes, dtype, numbers)


@st.composite
def poolings(draw: Any) -> Case:
    """Draw a pooling or one of its gradients."""
    dims = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(list(_POOLS)))
    ignore_border = draw(st.booleans())
    leading = draw(st.sampled_from([(), (2,), (2, 3), (0, 2)]))
    image, size = draw(_tuples(dims, 0, 6)), draw(_tuples(dims, 1, 4))
    if draw(st.integers(0, 3)):
        image = tuple(max(n, 1) for n in image)
    step = draw(st.one_of(st.just(size), _tuples(dims, 1, 4)))
    pad = draw(st.one_of(st.just((0,) * dims), _tuples(dims, 0, 2))) if ignore_border else (0,) * dims
    if kind == "largest":
        pad = tuple(min(zeros, length - 1) for zeros, length in zip(pad, size))
    modes = ["average_inc_pad", "average_exc_pad", "sum", "max"]
    mode = "max" if kind == "largest" else draw(st.sampled_from(modes[:3] if kind == "average" else modes))
    options = {} if kind == "largest" else {"mode": mode}
    op = _POOLS[kind](ignore_border=ignore_border, ndim=dims, **options)
    x = (*leading, *image)
    shapes: tuple[tuple[int, ...], ...] = (x,)
    if kind != "pool":
        try:
            shapes = (x, tuple(map(int, pool.Pool.out_shape(x, size, ignore_border, step, pad, dims))))
        except Exception:
            shapes = (x, x)
    if any(length < 0 for shape in shapes for length in shape):
        shapes = (x,) * len(shapes)
    return Case(kind, op, shapes, draw(st.sampled_from(["float32", "float64"])), (size, step, pad))


def run(number: int, examples: int, device: str = "auto") -> dict[str, int]:
    """Compare random cases; return how many had equal results, and how many raised errors on both sides."""
    counts = {"equal": 0, "refused": 0}

    @seed(number)
    @chosen_settings(examples)
    @given(st.one_of(convolutions(), convolutions(), convolutions(), poolings()))
    def examine(case: Case) -> None:
        counts[compare(case, device)] += 1

    examine()
    return counts


@dataclass(frozen=True)
class Chunk:
    """The seed and the number of some examples, and the options of the process that runs them."""

    seed: int
    examples: int
    device: str
    kernels: str


def _run(chunk: Chunk, timeout: float) -> End:
    """Compare some examples in a process."""
    options = ["--worker", "--seed", chunk.seed, "--examples", chunk.examples, "--device", chunk.device]
    options += ["--kernels", chunk.kernels]
    return run_worker("fuzzing.convolutions", options, timeout, without_compiler())


@click.command()
@options(examples=1000, processes=os.cpu_count() or 1, timeout=900.0)
@click.option("--seed", "number", default=0, show_default=True, help="Seed of the random numbers.")
@click.option("--device", default="auto", show_default=True, help="Device, named as in optdb.mode.")
@kernels_option
@click.option("--worker", is_flag=True, hidden=True)
def main(
    examples: int, number: int, processes: int, device: str, kernels: tuple[str, ...], timeout: float, worker: bool
) -> None:
    """Compare random convolutions and poolings on a device with the Python code of Theano's own ops.

    The exit status is 1 if an example differs. Each process prints its smallest example that differs. The same seed
    gives the same examples.
    """
    if worker:
        replace_profile(device, kernels[0])
        try:
            print(run(number, examples, device))
        except AssertionError as difference:
            print(difference)
            raise SystemExit(1) from None
        return
    chunks = [
        Chunk(number * 1_000_000 + i, min(CHUNK, examples - start), device, kernels[i % len(kernels)])
        for i, start in enumerate(range(0, examples, CHUNK))
    ]
    failures = 0
    for _, end in run_chunks(chunks, functools.partial(_run, timeout=timeout), processes):
        failures += bool(end.trouble)
        click.echo((end.trouble or end.printed).strip())
    click.echo(f"{examples} examples, {failures} processes with a difference")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
