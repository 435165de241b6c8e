"""Random numbers and drawn samples on the device equal those of the host."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.sandbox.multinomial import ChoiceFromUniform, MultinomialFromUniform
from theano.sandbox.rng_mrg import MRG_RandomStreams, mrg_uniform

import optdb
from optdb.opencl import OpenCLArrayType, contexts
from optdb.opencl.ops.random import OpenCLChoiceFromUniform, OpenCLMRGUniform, OpenCLMultinomialFromUniform
from tests.opencl.layouts import NAME, device_array, run, variable
from tests.opencl.lifted import ops_of

with_compiler = pytest.mark.skipif(not theano.config.cxx, reason="the host's numbers are those of its C code")


def states(n: int, first: int = 5) -> np.ndarray:
    return (np.arange(n * 6).reshape(n, 6).astype("int32") + 1) * 123457 * first % 2147462578


@pytest.mark.parametrize(
    "size, streams", [((7, 5), 5), ((100,), 17), ((3,), 20), ((5, 33), 40), ((64,), 16), ((0,), 2)]
)
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_numbers_and_states_are_those_of_the_host(each_device_kind, dtype, size, streams):
    state = states(streams)
    host = mrg_uniform(tt.TensorType(dtype, [False] * len(size)))
    wanted = [[None], [None]]
    host.perform(host.make_node(state, size), [state, np.array(size)], wanted, None)
    op = OpenCLMRGUniform(OpenCLArrayType(dtype, [False] * len(size), NAME))
    new, sample = run(op.make_node(variable(state), size), [device_array(state, [1, -2]), np.array(size)])
    np.testing.assert_array_equal(sample, wanted[1][0])
    np.testing.assert_array_equal(new, wanted[0][0])


def test_a_negative_seed(each_device_kind):
    state = np.full((1, 6), -5, "int32")
    op = OpenCLMRGUniform(OpenCLArrayType("float64", [False], NAME))
    host = mrg_uniform(tt.dvector)
    wanted = [[None], [None]]
    host.perform(host.make_node(state, (40,)), [state, np.array([40])], wanted, None)
    new, sample = run(op.make_node(variable(state), (40,)), [device_array(state), np.array([40])])
    np.testing.assert_array_equal(sample, wanted[1][0])
    np.testing.assert_array_equal(new, wanted[0][0])


def functions(outputs_of, shared_on_device=True, linker="py"):
    """Compile a function for the host and for the device with the usual optimizer; return both functions."""
    made = []
    mode = theano.Mode(linker, "fast_run")
    for here in ("cpu", NAME):
        before = contexts.default
        contexts.default = NAME if shared_on_device and here == NAME else None
        try:
            rng = MRG_RandomStreams(42)
            inputs, outputs = outputs_of(rng)
            contexts.default = None if here == "cpu" else NAME
            made.append(theano.function(inputs, outputs, mode=mode if here == "cpu" else mode.including("opencl")))
        finally:
            contexts.default = before
    return made


@pytest.mark.slow_cases("True")
@with_compiler
@pytest.mark.parametrize("shared_on_device", [True, False])
def test_streams_go_on_alike(shared_on_device):
    def of(rng):
        u, mask = rng.uniform((9, 4), dtype="float32"), rng.binomial((9, 4), p=0.3, dtype="float32")
        return [], [u, mask, tt.dot(tt.exp(u) * mask, tt.tanh(mask - u).T)]

    on_host, on_device = functions(of, shared_on_device, "vm")
    for _ in range(3):
        got, want = on_device(), on_host()
        for mine, theirs in zip(got[:2], want[:2]):
            assert mine.dtype == theirs.dtype == "float32"
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(got[2], want[2], rtol=1e-5)
    ops = ops_of(on_device)
    assert OpenCLMRGUniform in ops and mrg_uniform not in ops
    # Theano's virtual machine does not delay commands until all nodes have run. A call may stop halfway, so no op
    # overwrites state on the device.
    nodes = [n for n in on_device.maker.fgraph.toposort() if isinstance(n.op, OpenCLMRGUniform)]
    assert {n.op.inplace for n in nodes} == {not shared_on_device}


@pytest.mark.slow
def test_normal_numbers():
    def of(rng):
        n = tt.lscalar()
        return [n], [rng.normal((n, 3), 1.0, 2.0, dtype="float64"), rng.truncated_normal((n,), dtype="float64") * 1]

    on_host, on_device = functions(of)
    for n in (5, 2):
        for mine, theirs in zip(on_device(n), on_host(n)):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert OpenCLMRGUniform in ops_of(on_device)


@pytest.mark.slow_cases("cpu")
@with_compiler
def test_draws_are_those_of_the_host(each_device_kind):
    p, u, n = tt.fmatrix(), tt.fvector(), tt.iscalar()
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(7), 6).astype("float32")
    # The host does not initialize elements that are not drawn, so the test draws all elements.
    values = rng.uniform(0, 0.4, 18).astype("float32")
    for host, ours in (
        (MultinomialFromUniform("auto"), OpenCLMultinomialFromUniform("auto")),
        (ChoiceFromUniform("int32"), OpenCLChoiceFromUniform("int32")),
        (ChoiceFromUniform("auto", replace=True), OpenCLChoiceFromUniform("auto", replace=True)),
    ):
        want = theano.function([p, u, n], host(p, u, n))(weights, values, 3)
        node = ours(variable(weights), variable(values), np.int32(3)).owner
        (got,) = run(node, [device_array(weights, [1, -2]), device_array(values, [-2]), 3])
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_multinomial_and_choice_of_streams():
    weights = np.random.default_rng(1).dirichlet(np.ones(4), 5)

    def of(rng):
        p = tt.dmatrix()
        return [p], [rng.multinomial(n=3, pvals=p, dtype="float32") * 1, rng.choice(2, replace=False, p=p)]

    on_host, on_device = functions(of)
    for mine, theirs in zip(on_device(weights), on_host(weights)):
        assert np.asarray(mine).dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(mine), theirs)
    assert {OpenCLMultinomialFromUniform, OpenCLChoiceFromUniform} <= set(ops_of(on_device))


def test_numpys_generator_stays_on_the_host_for_a_reason(default):
    noise = tt.shared_randomstreams.RandomStreams(1).normal((3, 4))
    x = tt.matrix()
    f = theano.function([x], tt.exp(tt.dot(x + noise, x.T)), mode=theano.Mode("py", "fast_run").including("opencl"))
    reasons = {reason for (_, reason) in optdb.explain(f).reports[0].by_reason()}
    assert any("MRG_RandomStreams" in reason for reason in reasons)


def test_ops_are_pickled():
    op = OpenCLMRGUniform(OpenCLArrayType("float32", [False], NAME), inplace=True)
    again = pickle.loads(pickle.dumps(op))
    assert again == op and again.destroy_map == {0: [0]}
