"""Measures a net whose learning phase is an input, so that each dropout and batch normalization is a branch.

``python -m profiles.branches`` trains a net with the learning phase as an input, and with the phase fixed. Each dense
layer has a batch normalization and a dropout, written as in Keras with ``K.in_train_phase``. Simulators run the steps.
"""

from __future__ import annotations

import statistics

import click
import numpy as np
import theano
import theano.tensor as tt
from rich.table import Table
from theano.ifelse import ifelse
from theano.sandbox.rng_mrg import MRG_RandomStreams

import optdb
from optdb.opencl import contexts
from profiles import terminal
from profiles.stopwatch import race

#: The fraction of the units of each layer that dropout sets to zero.
_DROPPED = 0.3
#: Seconds of each measurement, and seconds of calls before the first one, because plans may still change at first.
_TURN_S, _SETTLE_S = 0.3, 5.0


@click.command()
@terminal.count_option("--layers", 8, "Number of layers; each has two branches.")
@terminal.count_option("--units", 64, "Number of units in each layer.")
@terminal.count_option("--batch", 32, "Number of examples in a step.")
@terminal.count_option("--repeat", 15, "Number of turns of each contender.")
@terminal.device_option()
def main(layers: int, units: int, batch: int, repeat: int, device: str) -> None:
    """Compare a training step whose learning phase is an input with a training step whose phase is fixed."""
    contexts.register("measured", device)
    data = np.random.RandomState(0).uniform(size=(batch, units)).astype("float32")
    fixed, chosen = (optdb.SimulatorOCL(_step(layers, units, phase), "measured") for phase in (True, False))
    contenders = {"fixed": lambda: fixed(data), "an input": lambda: chosen(data, 1)}
    seconds = race(contenders, repeat, _TURN_S, _SETTLE_S)
    table = Table("learning phase", "ms for a step", title=f"{2 * layers} layers with branches")
    for name, times in seconds.items():
        table.add_row(name, f"{statistics.median(times) * 1e3:.3f}")
    terminal.console().print(table)
    ratios = [one / other for one, other in zip(seconds["an input"], seconds["fixed"], strict=True)]
    terminal.console().print(f"an input / fixed: {statistics.median(ratios):.2f}")


def _step(layers: int, units: int, fixed: bool) -> theano.compile.function_module.Function:
    """Return a training step; if the learning phase is not fixed, it is the second input."""
    x, phase = tt.fmatrix("x"), tt.bscalar("phase")
    rng, random = MRG_RandomStreams(1), np.random.RandomState(1)

    def in_train_phase(one: tt.TensorVariable, other: tt.TensorVariable) -> tt.TensorVariable:
        return one if fixed else ifelse(phase, one, other)

    def shared(*shape: int) -> tt.TensorVariable:
        return theano.shared((random.standard_normal(shape) / units**0.5).astype("float32"), target="cpu")

    hidden, params = x, []
    for _ in range(layers):
        weights, shift, mean, deviation = shared(units, units), shared(units), shared(units), shared(units) + 1
        params += [weights, shift]
        hidden = hidden.dot(weights)
        moved = (hidden - hidden.mean(axis=0)) / tt.sqrt(hidden.var(axis=0) + np.float32(1e-3))
        hidden = tt.nnet.relu(in_train_phase(moved, (hidden - mean) / deviation) + shift)
        kept = rng.binomial(hidden.shape, p=1 - _DROPPED, dtype="float32") / np.float32(1 - _DROPPED)
        hidden = in_train_phase(hidden * kept, hidden)
    loss = (hidden**2).mean()
    updates = [(param, param - np.float32(0.01) * grad) for param, grad in zip(params, theano.grad(loss, params))]
    updates += [(state, following) for state, following, *_ in rng.state_updates]
    return theano.function(
        [x] if fixed else [x, phase], loss, updates=updates, mode=optdb.mode(theano.Mode("py", "fast_run"))
    )


if __name__ == "__main__":
    main()
