"""Lifters that are registered without a database are added to the device's database."""

from __future__ import annotations

import pytest

import optdb
from optdb.lifters.device import NoLifterDatabase
from tests.processes import output

LIFTER = """
    import numpy as np
    import optdb, theano, theano.tensor as tt
    {first}
    class Halve(theano.Op):
        __props__ = ()
        def make_node(self, x):
            return theano.Apply(self, [x], [x.type()])
        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0] / 2

    @optdb.register_topo("fast_run", "fast_compile", "opencl")
    @optdb.op_lifter([Halve])
    def lift_halve(op, context_name, inputs, outputs):
        from optdb.opencl.ops.elemwise import OpenCLElemwise
        return OpenCLElemwise(theano.scalar.mul)(*inputs, np.float32(0.5))

    x = tt.fmatrix()
    f = theano.function([x], tt.exp(Halve()(x)))
    assert not any(isinstance(node.op, Halve) for node in f.maker.fgraph.apply_nodes), f.maker.fgraph
    print(f(np.zeros((1, 2), "float32")).tolist())
"""


@pytest.mark.slow
def test_a_lifter_is_registered_with_those_of_the_device():
    assert output(LIFTER.format(first=""), flags="optdb.device=opencl") == "[[1.0, 1.0]]"


@pytest.mark.slow
def test_a_lifter_without_a_device_is_refused_in_words():
    code = """
        import optdb, theano
        try:
            @optdb.register_topo("fast_run")
            @optdb.op_lifter([theano.tensor.Dot])
            def lift_dot(op, context_name, inputs, outputs): pass
        except LookupError as error:
            print(error)
    """
    assert output(code) == (
        "there is no device yet: import optdb.opencl before, or name the database, as in "
        "@optdb.register_topo('fast_run', db=optdb.opencl.lifters_db)"
    )


def test_several_devices_are_named(monkeypatch):
    import theano

    from optdb.lifters import device

    class Named:
        def __init__(self, name):
            self.name = name

    monkeypatch.setattr(device, "_databases", {Named("one"): None, Named("two"): None})
    with pytest.raises(NoLifterDatabase, match=r"there are several devices \(one, two\): name the database, as in @"):

        @optdb.register_topo("fast_run")
        @optdb.op_lifter([theano.tensor.Dot])
        def lift_dot(op, context_name, inputs, outputs):
            pass
