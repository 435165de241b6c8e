"""Uniform draws for all streams at once, and multinomial draws for all rows at once, with the values of the C code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from theano.sandbox.multinomial import ChoiceFromUniform, MultinomialFromUniform
from theano.sandbox.rng_mrg import mrg_uniform

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes, quiet

#: The moduli of MRG31k3p; the first is also the maximum number of samples of a node.
_M1, _M2 = 2**31 - 1, 2**31 - 21069


@computes(mrg_uniform)
def _uniform(node: Apply) -> Compute:
    op = node.op
    assert isinstance(op, mrg_uniform)
    in_place, sample_type = op.inplace, node.outputs[1].type

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        state, shape = inputs
        lengths = [int(length) for length in shape]
        if len(lengths) != sample_type.ndim:
            raise ValueError(f"size must have length {sample_type.ndim} (not {len(lengths)})")
        count = math.prod(lengths)
        if count > _M1:
            raise ValueError("rng_mrg does not support more than (2**31 -1) samples")
        new_state = state if in_place else state.copy()
        sample = np.empty(count, sample_type.dtype)
        _draw(new_state, sample)
        storage[0][0], storage[1][0] = new_state, sample.reshape(lengths)

    return quiet(compute)


def _draw(state: np.ndarray, sample: np.ndarray) -> None:
    """Fill `sample`, whose element i comes from stream i % n_streams, and advance `state`."""
    streams = len(state)
    # The array is contiguous along the streams. Unsigned numbers let one comparison detect a sum above the modulus.
    numbers = state.T.astype(np.uint32)
    for start in range(0, len(sample), streams):
        part = sample[start : start + streams]
        active = numbers[:, : len(part)]
        _step(active)
        part[:] = _scaled(active[0], active[3], sample.dtype)
    state[...] = numbers.T


def _step(numbers: np.ndarray) -> None:
    _, x2, x3, y1, _, y3 = numbers
    first = ((x2 & 511) << 22) + (x2 >> 9) + ((x3 & 16777215) << 7) + (x3 >> 24)
    first = _reduced(_reduced(first, _M1) + x3, _M1)
    low = _reduced(((y1 & 65535) << 15) + 21069 * (y1 >> 16), _M2)
    second = _reduced(((y3 & 65535) << 15) + 21069 * (y3 >> 16), _M2)
    second = _reduced(_reduced(second + y3, _M2) + low, _M2)
    numbers[1:3] = numbers[0:2].copy()
    numbers[4:6] = numbers[3:5].copy()
    numbers[0], numbers[3] = first, second


def _reduced(numbers: np.ndarray, modulus: int) -> np.ndarray:
    """Subtract the modulus in place from numbers that have reached it."""
    return np.subtract(numbers, np.uint32(modulus), out=numbers, where=numbers >= modulus)


def _scaled(first: np.ndarray, second: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the difference of the two components, scaled to a number between 0 and 1."""
    difference = first - second
    np.add(difference, np.uint32(_M1), out=difference, where=first <= second)
    if dtype == np.float16:
        # Theano has no C code for float16. Use 15 bits, so that no sample rounds to 1.
        return ((difference & 0x7FFF) + 1) * float(np.float16(3.0458e-05))
    norm = 4.6566126e-10 if dtype == np.float32 else 4.656612873077392578125e-10
    return difference.astype(dtype) * dtype.type(norm)


@computes(MultinomialFromUniform)
def _multinomial(node: Apply) -> Compute:
    dtype = node.outputs[0].type.dtype

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        probabilities, draws = inputs[:2]
        samples = int(inputs[2]) if len(inputs) > 2 else 1  # nodes from old pickles lack this input
        rows, outcomes = probabilities.shape
        if len(draws) != rows * samples:
            raise ValueError("unis.shape[0] != pvals.shape[0] * n_samples", len(draws), rows, samples)
        counts = np.zeros((rows, outcomes), dtype)
        for of_sample in draws.reshape(samples, rows) if outcomes else ():
            counts[_drawn(probabilities, of_sample)] += 1
        storage[0][0] = counts

    return quiet(compute)


@computes(ChoiceFromUniform)
def _choice(node: Apply) -> Compute:
    op = node.op
    assert isinstance(op, ChoiceFromUniform)
    dtype, replace = node.outputs[0].type.dtype, op.replace

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        weights, draws, samples = inputs[0].copy(), inputs[1], int(inputs[2])
        rows, outcomes = weights.shape
        if samples > outcomes:
            raise ValueError("Cannot sample without replacement n samples bigger than the size of the distribution.")
        if len(draws) != rows * samples:
            raise ValueError("unis.shape[0] != pvals.shape[0] * n_samples", len(draws), rows, samples)
        choices = np.full((rows, samples), -1, dtype)
        for number, of_sample in enumerate(draws.reshape(samples, rows)):
            found, chosen = _drawn(weights, of_sample)
            choices[found, number] = chosen
            if not replace:
                weights[found, chosen] = 0
                weights[found] /= weights[found].sum(axis=1, keepdims=True)
        storage[0][0] = choices

    return quiet(compute)


def _drawn(weights: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows whose draw selects an outcome, and these outcomes. A draw above the total weight selects none."""
    exceeds = weights.cumsum(axis=1, dtype="float64") > draws[:, None]
    found = np.flatnonzero(exceeds.any(axis=1))
    return found, exceeds[found].argmax(axis=1)
