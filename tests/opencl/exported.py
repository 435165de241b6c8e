"""Exports functions, for tests that compare exported functions with the originals."""

from __future__ import annotations

import numpy as np
import theano

from optdb.opencl import as_opencl_variable
from optdb.opencl.exporting import export as write
from optdb.runtime.exported import load
from tests.opencl_device import new_context

MODE = theano.compile.get_default_mode().including("opencl")


def on_device(inputs, outputs, there=True, **kwargs):
    """Compile for the device; with `there`, a single result stays on the device, so lifting is always worthwhile."""
    if there and isinstance(outputs, theano.Variable):
        outputs = as_opencl_variable(outputs, "dev0")
    return theano.function(inputs, outputs, mode=MODE, **kwargs)


def shared(value, name, dtype="float32"):
    return theano.shared(np.asarray(value, dtype), name=name, target="dev0")


def floats(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("float32")


def context_of_kind(device_kind, compute_units=None):
    """Return a context on the available device, with the kernels of a given kind of device."""
    context = new_context()
    context.profile = context.profile.as_kind(device_kind, compute_units)
    return context


def export(path, examples, **functions):
    """Export functions; `examples` is a list for all functions, or maps the name of each function to a list."""
    examples = examples if isinstance(examples, dict) else dict.fromkeys(functions, examples)
    return write(functions, path, examples)


def exported(folder, device_kind, examples, **functions):
    """Export functions, and load them for a kind of device."""
    path = folder / "functions.optdb"
    export(path, examples, **functions)
    return load(path, context_of_kind(device_kind))


def same(got, want, **tolerance):
    """Compare the results of an exported function with those of the original."""
    if not isinstance(got, list):
        got, want = [got], [want]
    for one, other in zip(got, want, strict=True):
        other = np.asarray(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, **{"rtol": 1e-5, "atol": 1e-6} | tolerance)
