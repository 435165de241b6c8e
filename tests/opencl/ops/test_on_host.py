"""The host computes some linear algebra within device graphs."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor import nlinalg, slinalg

import optdb
from optdb.lifters.transfers import count_transfers
from optdb.opencl import get_context
from optdb.opencl.ops.linalg import OpenCLOnHost
from tests.opencl.layouts import NAME, device_array, run, variable
from tests.opencl.lifted import both, ops_of

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(4, 4))
POSITIVE = SQUARE @ SQUARE.T + np.eye(4)
TALL = RNG.normal(size=(5, 3))


@pytest.fixture(params=[True, False], ids=["shared", "apart"])
def each_memory(request, monkeypatch):
    """Run a test with a device that shares the host's memory, and with a device that seems to have its own memory."""
    context = get_context(NAME)
    monkeypatch.setattr(context, "profile", replace(context.profile, shares_host_memory=request.param))
    return request.param


CASES = {
    "symmetric": (lambda x: slinalg.solve_symmetric(x, x[:, :2]), POSITIVE),
    "inverse": (nlinalg.matrix_inverse, SQUARE),
    "pinv": (nlinalg.pinv, TALL),
    "det": (nlinalg.det, SQUARE),
    "eigh": (nlinalg.eigh, POSITIVE),
    "qr": (nlinalg.qr, TALL),
    "svd": (nlinalg.svd, TALL),
    "expm": (slinalg.expm, SQUARE),
    "eigvalsh": (lambda x: slinalg.eigvalsh(x, tt.eye(4)), POSITIVE),
    "solve": (lambda x: slinalg.solve(x, x[:, 1:]), SQUARE),
    "lstsq": (lambda x: nlinalg.lstsq()(x, x[:, 0], -1.0), TALL),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_host(name):
    op, value = CASES[name]
    x = tt.dmatrix()
    outputs = op(x)
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    got, want, ops = both([x], outputs, [value])
    assert OpenCLOnHost in ops
    for mine, theirs in zip(got, want):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "op",
    [
        *(slinalg.cholesky, nlinalg.matrix_inverse, nlinalg.pinv, nlinalg.det, nlinalg.Eigh(), slinalg.expm),
        *(nlinalg.QRFull("reduced"), nlinalg.QRIncomplete("r"), nlinalg.SVD(), nlinalg.Eig()),
    ],
    ids=str,
)
def test_what_is_mapped_is_left_as_it_was(op):
    for steps in ([1, 1], [-1, 2]):
        array = device_array(POSITIVE, steps)
        outputs = op.make_node(tt.dmatrix()).outputs
        node = OpenCLOnHost(op, [out.type for out in outputs])(variable(POSITIVE), return_list=True)[0].owner
        node.op.perform(node, [array], [[None] for _ in outputs])
        np.testing.assert_array_equal(array.get(), POSITIVE)


@pytest.mark.slow_cases("det")
@pytest.mark.parametrize("name", ["inverse", "det", "solve"])
def test_gradients_through_it(name):
    op, value = CASES[name]
    x = tt.dmatrix()
    got, want, ops = both([x], theano.grad((op(x) ** 2).sum(), x), [value])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-9, atol=1e-9)
    assert OpenCLOnHost in ops


def test_gradients_of_the_device_op():
    x, z = variable(POSITIVE), tt.dmatrix()
    on_device = OpenCLOnHost(slinalg.Cholesky(), [tt.dmatrix])(x)
    ours = theano.grad(tt.as_tensor_variable(on_device).sum(), x)
    theirs = theano.grad(slinalg.cholesky(z).sum(), z)
    mode = theano.Mode("py", None)
    got = theano.function([x], ours, mode=mode)(device_array(POSITIVE))
    np.testing.assert_allclose(np.asarray(got), theano.function([z], theirs, mode=mode)(POSITIVE), rtol=1e-12)


@pytest.mark.parametrize("steps", [[1, 1], [-1, 2], [2, -1]])
def test_any_layout_and_what_is_counted(each_memory, steps):
    array = device_array(SQUARE, steps)
    node = OpenCLOnHost(nlinalg.matrix_inverse, [tt.dmatrix])(variable(SQUARE)).owner
    with count_transfers() as traffic:
        (got,) = run(node, [array])
    np.testing.assert_allclose(got, np.linalg.inv(SQUARE), rtol=1e-12)
    np.testing.assert_array_equal(array.get(), SQUARE)
    # The result is always copied; the input is copied only if memory is not shared.
    copies = 1 if each_memory else 2
    assert traffic.transfers == {"OpenCLOnHost": copies}
    assert traffic.nbytes == {"OpenCLOnHost": copies * SQUARE.nbytes}


class _AsItIs(theano.Op):
    """An op that returns a reversed view of its input, and the number of elements."""

    __props__ = ()

    def make_node(self, x):
        return theano.Apply(self, [x], [x.type(), tt.lscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0], outputs[1][0] = inputs[0][::-1], np.array(inputs[0].size)


def test_a_view_of_an_input_becomes_an_array_of_its_own(each_memory):
    array = device_array(TALL)
    lifted = OpenCLOnHost(_AsItIs(), [tt.dmatrix, tt.lscalar])
    node = lifted(variable(TALL), return_list=True)[0].owner
    outputs = [[None], [None]]
    node.op.perform(node, [array], outputs)
    array[...] = device_array(np.zeros_like(TALL))
    np.testing.assert_array_equal(outputs[0][0].get(), TALL[::-1])
    assert type(outputs[1][0]) is np.ndarray and outputs[1][0] == 15


def test_nothing_at_all(each_memory):
    empty = np.zeros((0, 0))
    node = OpenCLOnHost(nlinalg.matrix_inverse, [tt.dmatrix])(variable(empty)).owner
    assert run(node, [device_array(empty)])[0].shape == (0, 0)


def test_errors_are_the_hosts(each_memory):
    singular = np.zeros((2, 2))
    array = device_array(singular)
    node = OpenCLOnHost(nlinalg.matrix_inverse, [tt.dmatrix])(variable(singular)).owner
    with pytest.raises(np.linalg.LinAlgError):
        run(node, [array])
    np.testing.assert_array_equal(array.get(), singular)  # after the error, the array is still usable


def test_what_overwrites_its_inputs_is_refused():
    op = slinalg.Cholesky()
    op.destroy_map = {0: [0]}
    with pytest.raises(TypeError, match="overwrites its inputs"):
        OpenCLOnHost(op, [tt.dmatrix])
    with pytest.raises(TypeError, match="takes device arrays"):
        OpenCLOnHost(nlinalg.det, [tt.dscalar])(tt.dmatrix())


def test_the_graph_around_stays_on_the_device(default):
    x = tt.dmatrix()
    middle = nlinalg.matrix_inverse(tt.dot(x, x.T) + tt.eye(4))
    mode = theano.Mode("py", "fast_run").including("opencl")
    f = theano.function([x], tt.dot(tt.exp(middle), x), mode=mode)
    explained = optdb.explain(f, SQUARE)
    assert sum(explained.transfers.values()) == 2
    assert "within OpenCLOnHost" in str(explained)
    assert explained.traffic.transfers["OpenCLFromHost"] == 1
    assert f"OpenCLFromHost<{NAME}>" in explained.transfers and "0 times" not in str(explained)
    np.testing.assert_allclose(f(SQUARE), np.exp(np.linalg.inv(SQUARE @ SQUARE.T + np.eye(4))) @ SQUARE)
    # An inverse alone is not worth the transfers.
    assert OpenCLOnHost not in ops_of(theano.function([x], nlinalg.matrix_inverse(x), mode=mode))


def test_the_op_is_pickled():
    op = OpenCLOnHost(nlinalg.SVD(False, True), [tt.dmatrix, tt.dvector, tt.dmatrix])
    assert pickle.loads(pickle.dumps(op)) == op
