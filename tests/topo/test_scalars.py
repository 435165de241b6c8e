"""Only shared arithmetic on 0-d arrays is inlined into its users."""

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.elemwise import Elemwise

import optdb

MODE = optdb.mode(theano.Mode("py", "fast_run"))
# In-place rewriting runs later, and would make nodes harder to count.
COUNTED = MODE.excluding("inplace")


def elementwise(function):
    return [node for node in function.maker.fgraph.toposort() if isinstance(node.op, Elemwise)]


def shared_scalar(users):
    """Return two inputs, and `users` outputs whose only common part is a sum that depends on these inputs."""
    x, y = tt.dscalars("xy")
    shared = tt.exp(x) + y
    return [x, y], [tt.sin(shared * (i + 2)) for i in range(users)]


@pytest.mark.parametrize("users", [2, 3, 4])
def test_each_user_computes_it_itself(users):
    inputs, outputs = shared_scalar(users)
    assert len(elementwise(theano.function(inputs, outputs, mode=COUNTED))) == users


def test_many_users_share_it():
    inputs, outputs = shared_scalar(5)
    assert len(elementwise(theano.function(inputs, outputs, mode=COUNTED))) == 6


def test_values_are_the_same():
    inputs, outputs = shared_scalar(3)
    ours = theano.function(inputs, outputs, mode=MODE)
    stock = theano.function(inputs, outputs, mode=theano.Mode("py", "fast_run"))
    np.testing.assert_allclose(ours(0.3, -2.0), stock(0.3, -2.0), rtol=1e-15)


def test_arrays_are_computed_once():
    x = tt.dvector()
    shared = tt.exp(x)
    f = theano.function([x], [shared * 2, shared + 1], mode=COUNTED)
    assert len(elementwise(f)) == 3


def test_an_output_stays_a_node():
    x = tt.dscalar()
    shared = tt.exp(x)
    f = theano.function([x], [shared, shared * 2, shared + 1], mode=COUNTED)
    assert len(elementwise(f)) == 3
    np.testing.assert_allclose(f(1.0), [np.e, 2 * np.e, np.e + 1])


def test_a_user_that_is_an_array_keeps_it_outside():
    x, v = tt.dscalar(), tt.dvector()
    shared = tt.exp(x)
    f = theano.function([x, v], [shared * v, shared + 1], mode=COUNTED)
    assert len(elementwise(f)) == 3


def test_it_goes_with_fusion():
    inputs, outputs = shared_scalar(2)
    fused = elementwise(theano.function(inputs, outputs, mode=COUNTED))
    plain = elementwise(theano.function(inputs, outputs, mode=COUNTED.excluding("fusion")))
    assert len(plain) > len(fused)


def test_stock_modes_do_not_know_it():
    inputs, outputs = shared_scalar(2)
    stock = theano.Mode("py", "fast_run").excluding("inplace")
    assert len(elementwise(theano.function(inputs, outputs, mode=stock))) == 3


def sizes_fused(inputs, outputs, base="fast_run"):
    """Return the elementwise nodes that remain after a device mode's rewriters have run (no device is needed)."""
    mode = optdb.mode(theano.Mode("py", base), device="auto")
    return elementwise(theano.function(inputs, outputs, mode=type(mode)("py", mode.provided_optimizer)))


def test_a_device_s_mode_fuses_arithmetic_of_sizes():
    n, m = tt.lscalar("n"), tt.iscalar("m")
    shared = tt.maximum(n - 3, m)
    assert len(sizes_fused([n, m], [tt.switch(tt.lt(shared, 0), shared + n, shared * 2), n // shared])) == 2


def test_a_device_s_mode_fuses_nothing_else():
    a, n, v = tt.fscalar("a"), tt.lscalar("n"), tt.lvector("v")
    assert len(sizes_fused([a], tt.exp(a) * 2 + 1)) == 3
    assert len(sizes_fused([v], (v + 1) * v)) == 2
    # The cast makes the size an operand of the device's arithmetic, so it is not fused with the size's computation.
    assert len(sizes_fused([a, n], tt.cast(n * 2 + 1, "float32") * a)) == 3


def test_a_device_s_mode_fuses_sizes_where_the_mode_fuses():
    n = tt.lscalar("n")
    assert len(sizes_fused([n], (n + 1) // 2)) == 1
    assert len(sizes_fused([n], (n + 1) // 2, "fast_compile")) == 2
    mode = optdb.mode(theano.Mode("py", "fast_run").excluding("fusion"), device="auto")
    f = theano.function([n], (n + 1) // 2, mode=type(mode)("py", mode.provided_optimizer))
    assert len(elementwise(f)) == 2
