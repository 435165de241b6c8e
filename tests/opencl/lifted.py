"""Computes a graph on the host and on the device, for tests that compare the results."""

from __future__ import annotations

import numpy as np
import theano
from theano.gof import Apply

from optdb.lifters import GraphToGPU
from optdb.opencl import OPENCL, HostFromOpenCL, OpenCLFromHost, contexts, lifters_db
from optdb.opencl import lifters as _lifters  # noqa: F401  fills the database


def lifted_function(inputs, outputs, at_home=(), name="dev0"):
    """Return a function that computes on the device everything that lifters support, without other rewrites.

    Inputs come from the device, except for those in `at_home`, so that lifting is always worthwhile.
    """
    moved = {x: HostFromOpenCL()(OpenCLFromHost(name)(x)) for x in inputs if x not in at_home}
    outputs = [out.transfer(name) for out in theano.clone(outputs, moved)]
    mode = theano.Mode(linker="py", optimizer=GraphToGPU(lifters_db, OPENCL))
    with contexts.as_default(name):
        return theano.function(inputs, outputs, mode=mode, on_unused_input="ignore")


def ops_of(function) -> list[type]:
    """Return the classes of a function's ops, without transfers."""
    nodes: list[Apply] = function.maker.fgraph.toposort()
    return [type(node.op) for node in nodes if not isinstance(node.op, OpenCLFromHost | HostFromOpenCL)]


def host_function(inputs, outputs, linker="py"):
    """Return a function that computes on the host, in Python unless `linker` says otherwise."""
    return theano.function(inputs, outputs, mode=theano.Mode(linker=linker, optimizer=None), on_unused_input="ignore")


def both(inputs, outputs, values, at_home=(), linker="py"):
    """Compute a graph on the device and on the host; return both results as NumPy arrays, and the device's ops."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    on_host = host_function(inputs, outputs, linker)
    on_device = lifted_function(inputs, outputs, at_home)
    with np.errstate(all="ignore"):
        want = on_host(*values)
    got = [np.asarray(value) for value in on_device(*values)]
    return got, want, ops_of(on_device)
