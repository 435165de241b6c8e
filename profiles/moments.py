"""Prints the errors of float32 sums that are accumulated in float32: ``python -m profiles.moments``.

The error of a channel's number is measured in units in the last place of this number or, if it is larger, of the spread
of its terms. The spread is the standard deviation for a mean, and the root of the sum of squared terms for a sum. The
exact numbers are computed with NumPy's longdouble.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np
from rich.table import Table

from optdb.codegen.normalization.operations import BatchNormGradient, BatchNormTraining
from optdb.codegen.operation import ArraySpec, Operation
from optdb.codegen.reductions.plan import Reduction
from optdb.codegen.scalars.program import ProgramBuilder, Scalar, ScalarProgram
from optdb.runtime.arrays import Array, from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DeviceKind
from profiles import terminal

#: The shapes of arrays that models normalize over all axes except the second one.
SHAPES = {
    "cifar_resnet, first": (128, 16, 32, 32),
    "cifar_resnet, last": (128, 64, 8, 8),
    "resnet50, first": (8, 64, 56, 56),
    "resnet50, last": (32, 2048, 7, 7),
}
AXES = (0, 2, 3)
EPSILON = 1e-12

QUANTITIES = ("mean", "1 / deviation", "sum of dy", "sum of dy * (x - mean)")


def _normal(rng: np.random.Generator, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=shape), rng.normal(size=shape)


def _large_mean(rng: np.random.Generator, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    return 1e5 + rng.normal(size=shape), rng.normal(size=shape)


def _tiny_variance(rng: np.random.Generator, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    return 1 + 1e-5 * rng.normal(size=shape), rng.normal(size=shape)


def _far_apart(rng: np.random.Generator, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    order = np.arange(np.prod(shape)).reshape(shape)
    return np.where(order % 3 == 0, 1e4, -1e4) + rng.normal(size=shape), rng.normal(size=shape)


def _cancelling(rng: np.random.Generator, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    order = np.arange(np.prod(shape)).reshape(shape)
    return rng.normal(size=shape), np.where(order % 2, 1e4, -1e4) + rng.normal(size=shape)


#: Maps the name of a kind of data to a function that draws an array and a gradient.
DATA: dict[str, Callable[[np.random.Generator, Sequence[int]], tuple[np.ndarray, np.ndarray]]] = {
    "normal": _normal,
    "mean 1e5, deviation 1": _large_mean,
    "mean 1, deviation 1e-5": _tiny_variance,
    "1e4 and -1e4": _far_apart,
    "dy of 1e4 and -1e4": _cancelling,
}


@dataclass(frozen=True)
class MomentMethod:
    """A method to compute `QUANTITIES` for the channels of an array, and the kind of device whose kernels are used."""

    name: str
    device_kind: DeviceKind
    numbers: Callable[[Context, Array, Array], list[np.ndarray]]


def _by_batch_normalization(context: Context, x: Array, dy: Array) -> list[np.ndarray]:
    spec = ArraySpec("float32", (False,) * x.ndim)
    one = from_host(context, np.ones([1 if axis in AXES else n for axis, n in enumerate(x.shape)], "float32"))
    training = BatchNormTraining(context, spec, AXES, running=False)
    _, mean, inverse = training.compute(x, one, one, np.array(EPSILON), np.array(0.5), outputs=3)
    gradient = BatchNormGradient(context, spec, AXES)
    _, by_scale, by_bias = gradient.compute(x, dy, one, mean, inverse, np.array(EPSILON), outputs=3)
    on_host = [to_host(array).ravel() for array in (mean, inverse, by_scale, by_bias)]
    return [on_host[0], on_host[1], on_host[3], on_host[2] / on_host[1].astype("float64")]


def _by_sums(acc_dtype: str) -> Callable[[Context, Array, Array], list[np.ndarray]]:
    """Return a function that computes `QUANTITIES` by separate reductions, which accumulate in `acc_dtype`."""

    def numbers(context: Context, x: Array, dy: Array) -> list[np.ndarray]:
        whole, of_channel = ArraySpec("float32", (False,) * 4), ArraySpec("float32", (True, False, True, True))
        channels = (1, x.shape[1], 1, 1)
        count = from_host(context, np.array([x.size / x.shape[1]], "float32"))

        def fold(
            pre: ScalarProgram | None, post: ScalarProgram | None, specs: Sequence[ArraySpec], *arrays: Array
        ) -> Array:
            others = [] if post is None else [ArraySpec("float32", (True,))]
            operation: Operation = Reduction(
                context, "Add", specs, AXES, "float32", acc_dtype, pre=pre, post=post, others=others
            )
            (result,) = operation.compute(*arrays, *[count] * len(others))
            return result

        quotient = ScalarProgram.of(Scalar("TrueDiv", "float32"), ["float32"] * 2)
        mean = to_host(fold(None, quotient, [whole], x))
        center = from_host(context, mean.reshape(channels))
        variance = fold(_square_of_difference(), quotient, [whole, of_channel], x, center)
        total = fold(None, None, [whole], dy)
        product = fold(_product_with_difference(), None, [whole, of_channel, whole], x, center, dy)
        inverse = 1 / np.sqrt(to_host(variance).astype("float64") + EPSILON)
        return [mean, inverse.astype("float32"), to_host(total), to_host(product)]

    return numbers


def _square_of_difference() -> ScalarProgram:
    builder = ProgramBuilder(["float32"] * 2)
    difference = builder.apply(Scalar("Sub", "float32"), [0, 1])
    return builder.build([builder.apply(Scalar("Sqr", "float32"), [difference])])


def _product_with_difference() -> ScalarProgram:
    builder = ProgramBuilder(["float32"] * 3)
    difference = builder.apply(Scalar("Sub", "float32"), [0, 1])
    return builder.build([builder.apply(Scalar("Mul", "float32"), [difference, 2])])


METHODS = (
    MomentMethod("batch normalization, float64", "cpu", _by_batch_normalization),
    MomentMethod("batch normalization, compensated", "gpu", _by_batch_normalization),
    MomentMethod("sums, float64", "cpu", _by_sums("float64")),
    MomentMethod("sums, compensated", "gpu", _by_sums("float64")),
    MomentMethod("sums, float32", "cpu", _by_sums("float32")),
)


@dataclass(frozen=True)
class ExactQuantity:
    """The exact values of a quantity for each channel, and the spread of the terms that are added for it."""

    value: np.ndarray
    spread: np.ndarray

    def error(self, got: np.ndarray) -> float:
        """Return the largest error, in units in the last place of the larger of the value and its spread."""
        unit = np.spacing(np.maximum(np.abs(self.value), self.spread).astype("float32"))
        return float(np.max(np.abs(got - self.value) / unit))


def exact(x: np.ndarray, dy: np.ndarray, mean: np.ndarray) -> list[ExactQuantity]:
    """Return the exact `QUANTITIES`; the deviation uses the exact mean, and the sum of products the given mean."""
    x, dy, mean = (array.astype("longdouble") for array in (x, dy, mean))
    exact_mean = x.mean(AXES)
    variance = np.square(x - exact_mean[:, None, None]).mean(AXES)
    inverse, products = 1 / np.sqrt(variance + EPSILON), dy * (x - mean[:, None, None])
    sums = [ExactQuantity(terms.sum(AXES), np.sqrt(np.square(terms).sum(AXES))) for terms in (dy, products)]
    return [ExactQuantity(exact_mean, np.sqrt(variance)), ExactQuantity(inverse, inverse), *sums]


def errors(method: MomentMethod, device: str, x: np.ndarray, dy: np.ndarray) -> list[float]:
    """Return the largest error of each quantity that a method computes."""
    context = _context(device, method.device_kind)
    numbers = method.numbers(context, from_host(context, x), from_host(context, dy))
    return [want.error(got) for got, want in zip(numbers, exact(x, dy, numbers[0]), strict=True)]


@functools.cache
def _context(device: str, device_kind: DeviceKind) -> Context:
    """Return a context that uses the kernels for a kind of device."""
    context = Context(device)
    context.profile = context.profile.as_kind(device_kind)
    return context


@dataclass(frozen=True)
class MomentErrors:
    """The largest errors of a method for a kind of data, over all shapes."""

    data: str
    method: str
    #: The error of each of `QUANTITIES`.
    errors: tuple[float, ...]


def measure(
    shapes: Mapping[str, Sequence[int]], data: Iterable[str], device: str, methods: Sequence[MomentMethod] = METHODS
) -> Iterator[MomentErrors]:
    """Yield the errors of each method for each kind of data."""
    for name in data:
        every: dict[str, list[list[float]]] = {method.name: [] for method in methods}
        for number, shape in enumerate(shapes.values()):
            x, dy = (array.astype("float32") for array in DATA[name](np.random.default_rng(number), shape))
            for method in methods:
                every[method.name].append(errors(method, device, x, dy))
        for method_name, of_shapes in every.items():
            yield MomentErrors(name, method_name, tuple(np.max(of_shapes, axis=0)))


def render(rows: Iterable[MomentErrors]) -> Table:
    """Return the table, with a section for each kind of data."""
    table = Table(
        title="Errors of float32 numbers of channels, in units in the last place",
        caption="the largest of all channels and shapes; rounded once, a number is off by 0.5",
    )
    table.add_column("data")
    table.add_column("computed by", no_wrap=True)
    for quantity in QUANTITIES:
        table.add_column(quantity, justify="right")
    last = None
    for row in rows:
        if last not in (None, row.data):
            table.add_section()
        table.add_row(row.data if row.data != last else "", row.method, *[f"{error:,.3g}" for error in row.errors])
        last = row.data
    return table


@click.command()
@click.option(
    "--shape", "shapes", multiple=True, type=click.Choice(list(SHAPES)), help="Only this shape; can be repeated."
)
@click.option("--data", multiple=True, type=click.Choice(list(DATA)), help="Kind of data; all by default.")
@terminal.device_option(what="Device, named as in the flag optdb.device.")
def main(shapes: tuple[str, ...], data: tuple[str, ...], device: str) -> None:
    """Print the errors of sums that batch normalization needs: compensated float32 sums, and sums in float64."""
    chosen = {name: SHAPES[name] for name in shapes or SHAPES}
    terminal.console().print(render(measure(chosen, data or DATA, device)))


if __name__ == "__main__":
    main()
