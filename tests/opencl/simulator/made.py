"""Makes functions and their simulators, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import theano
import theano.tensor as tt

import optdb
from optdb.device.plans.plan import Plan


def simulated(inputs: Any, outputs: Any, **kwargs: Any) -> tuple[Any, optdb.SimulatorOCL]:
    """Return a function compiled for the host, and a simulator of it.

    Nodes are not fused, because Theano's Python code computes fused nodes element by element, without NumPy.
    """
    mode = theano.Mode(linker="py", optimizer="fast_run").excluding("fusion")
    f = theano.function(inputs, outputs, mode=mode, **kwargs)
    return f, optdb.SimulatorOCL(f, device="dev0")


def plan_of(sim: optdb.SimulatorOCL) -> Plan:
    """Return the latest plan of a simulator."""
    return sim._executable.run.plans[-1]


def chain(length: int) -> tuple[Any, Any, Any]:
    """Return a matrix, shared weights, and a value that many small commands compute from the matrix and the weights."""
    x = tt.fmatrix("x")
    w = theano.shared(np.eye(3, dtype="float32") * 2, "w")
    value = x
    for _ in range(length):
        value = tt.tanh(value.dot(w)).sum(axis=0, keepdims=True) + value
    return x, w, value


def training_step() -> tuple[Any, optdb.SimulatorOCL, Any, tuple[np.ndarray, np.ndarray]]:
    """Return a training function, its simulator, its weights, and its arguments."""
    rng = np.random.RandomState(0)
    x, y = tt.fmatrix("x"), tt.ivector("y")
    w = theano.shared(rng.randn(20, 5).astype("float32"), name="w")
    speed = theano.shared(np.zeros((20, 5), "float32"), name="speed")
    loss = tt.nnet.categorical_crossentropy(tt.nnet.softmax(x.dot(w)), y).mean()
    following = np.float32(0.9) * speed - np.float32(0.1) * tt.grad(loss, w)
    f, sim = simulated([x, y], loss, updates=[(w, w + following), (speed, following)])
    return f, sim, w, (rng.randn(8, 20).astype("float32"), rng.randint(0, 5, 8).astype("int32"))
