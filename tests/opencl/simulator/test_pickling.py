"""Pickles and copies of simulators contain the functions, the requested device, and the state."""

from __future__ import annotations

import copy
import pickle
import textwrap

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.sandbox.rng_mrg import MRG_RandomStreams

import optdb
from optdb.opencl import contexts
from optdb.runtime.errors import DeviceError
from tests.processes import output, run_code

PURE = theano.Mode(linker="py", optimizer="fast_run")
NO_DEVICE = {"OCL_ICD_VENDORS": "/nonexistent", "OPENCL_VENDOR_PATH": "/nonexistent"}


def make(device="dev0"):
    """Return a simulator with two methods that has already been called."""
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((3, 2), "float32"), name="w", target="cpu")
    count = theano.shared(np.int64(0), name="count")
    total = tt.dscalar("total")
    noise = MRG_RandomStreams(5).normal((3,))
    step = theano.function([x], x.dot(w).sum(), updates=[(w, w * 2 + 1), (count, count + 1)], mode=PURE, name="step")
    sim = optdb.SimulatorOCL(step, device)
    sim.add_method("predict", theano.function([x], tt.tanh(x.dot(w)), mode=PURE))
    sim.add_method("noise", theano.function([], noise, mode=PURE))
    sim.add_method("add", theano.function([theano.In(total, value=1.0, update=total + 1)], total * 2, mode=PURE))
    sim(X)
    sim.noise()
    sim.add()
    return sim


X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


def pickled(sim):
    return pickle.loads(pickle.dumps(sim, protocol=pickle.HIGHEST_PROTOCOL))


def cloudpickled(sim):
    cloudpickle = pytest.importorskip("cloudpickle")
    return pickle.loads(cloudpickle.dumps(sim))


def answers(sim):
    return [sim(X), sim.predict(X), sim.noise(), sim.add(), sim.get("w"), sim.get("count"), sim.predict(X[:2])]


@pytest.mark.slow_cases("pickled")
@pytest.mark.parametrize("travel", [pickled, cloudpickled, copy.copy, copy.deepcopy])
def test_a_copy_goes_on_where_the_simulator_was(travel):
    sim = make()
    again = travel(sim)
    assert again.device == sim.device
    assert list(again) == ["predict", "noise", "add"]
    np.testing.assert_array_equal(again.get("w"), np.full((3, 2), 3, "float32"))
    for _ in range(3):
        for ours, theirs in zip(answers(again), answers(sim), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("travel", [pickled, copy.copy, copy.deepcopy])
def test_a_copy_has_a_state_of_its_own(travel):
    sim = make()
    again = travel(sim)
    again(X)
    np.testing.assert_array_equal(sim.get("w"), np.full((3, 2), 3, "float32"))
    np.testing.assert_array_equal(again.get("w"), np.full((3, 2), 7, "float32"))
    # The methods of the copy share a variable, as those of the original do.
    np.testing.assert_allclose(again.predict(X), np.tanh(X.dot(np.full((3, 2), 7))), rtol=1e-5)
    assert len(again.shared) == len(sim.shared) == 3


def test_a_copy_is_of_the_same_functions_and_a_deep_copy_of_others():
    sim = make()
    assert copy.copy(sim).functions == sim.functions
    deep = copy.deepcopy(sim)
    deep.sync_to_theano()
    w = sim.shared[0]
    np.testing.assert_array_equal(w.get_value(), np.ones((3, 2)))
    copy.copy(sim).sync_to_theano()
    np.testing.assert_array_equal(w.get_value(), np.full((3, 2), 3))


def test_a_variable_that_travels_with_it_is_still_its_own():
    sim = make()
    again, w = pickle.loads(pickle.dumps((sim, sim.shared[0])))
    again(X)
    again.sync_to_theano(w)
    np.testing.assert_array_equal(w.get_value(), again.get("w"))
    np.testing.assert_array_equal(w.get_value(), np.full((3, 2), 7))


@pytest.mark.slow
def test_the_device_is_looked_for_as_it_was_asked_for(default):
    sim = make("auto")
    assert sim._state.context_name == "dev0"
    data = pickle.dumps(sim)
    contexts.default = "dev1"
    assert pickle.loads(data)._state.context_name == "dev1"


@pytest.mark.slow
def test_without_that_device_the_default_one_is_taken(default, caplog):
    contexts.register("elsewhere", "opencl")
    data = pickle.dumps(make("elsewhere"))
    contexts.forget("elsewhere")
    again = pickle.loads(data)
    assert again._state.context_name == "dev0"
    assert f"that was on the device elsewhere is now on {again.device}" in caplog.text
    assert "elsewhere" not in contexts
    np.testing.assert_array_equal(again.get("w"), np.full((3, 2), 3))


def test_what_is_no_device_gets_no_name():
    with pytest.raises(DeviceError, match="no device has that name"):
        make("no such device")
    assert "no such device" not in contexts


def test_arrays_of_the_device_itself_travel():
    x = tt.fvector("x")
    w = theano.shared(np.arange(3, dtype="float32"), target="dev0", name="w")
    sim = optdb.SimulatorOCL(theano.function([x], x + w.transfer("cpu"), updates=[(w, w + 1)], mode=PURE), "dev0")
    sim(np.ones(3, "float32"))
    again = pickled(sim)
    np.testing.assert_array_equal(again(np.ones(3, "float32")), [2, 3, 4])
    np.testing.assert_array_equal(again.get(w.name), [2, 3, 4])


WRITE = """
    import pickle, numpy as np
    import optdb, theano, theano.tensor as tt
    x = tt.dvector("x")
    w = theano.shared(np.arange(3.0), name="w")
    mode = theano.Mode(linker="py", optimizer="fast_run")
    f = theano.function([x], x * w, updates=[(w, w + 1)], mode=mode)
    sim = optdb.SimulatorOCL(f)
    sim.add_method("get_w", theano.function([], w * 2, mode=mode))
    sim(np.ones(3))
    with open("sim", "wb") as file:
        pickle.dump(sim, file)
    print(sim.get("w").tolist())
"""

READ = """
    import pickle
    with open("sim", "rb") as file:
        sim = pickle.load(file)
    print(type(sim).__name__, sim([1, 1, 1]).tolist(), sim.get_w().tolist())
"""

READ_WITHOUT = """
    import pickle
    import optdb
    try:
        with open("sim", "rb") as file:
            pickle.load(file)
    except optdb.SimulatorNotRestored as error:
        print("The cure:" in str(error), sorted(error.functions))
        print(error.functions["__call__"]([1, 1, 1]).tolist(), error.functions["get_w"]().tolist())
        error = pickle.loads(pickle.dumps(error))
        error.sync_to_theano()
        print(error.functions["__call__"]([1, 1, 1]).tolist(), error.functions["get_w"]().tolist())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that contains a pickle."""
    path = tmp_path_factory.mktemp("pickled")
    assert output(WRITE, cwd=path) == "[1.0, 2.0, 3.0]"
    return path


@pytest.mark.slow
def test_another_process_reads_it(folder):
    assert output(READ, cwd=folder) == "SimulatorOCL [1.0, 2.0, 3.0] [4.0, 6.0, 8.0]"


HAD = ["True ['__call__', 'get_w']", "[0.0, 1.0, 2.0] [2.0, 4.0, 6.0]", "[1.0, 2.0, 3.0] [4.0, 6.0, 8.0]"]


@pytest.mark.slow
def test_without_a_device_the_functions_are_had(folder):
    assert output(READ_WITHOUT, cwd=folder, env=NO_DEVICE).splitlines() == HAD


@pytest.mark.slow
def test_without_pyopencl_the_functions_are_had(folder):
    code = "import sys; sys.modules['pyopencl'] = None\n" + textwrap.dedent(READ_WITHOUT)
    assert output(code, cwd=folder).splitlines() == HAD


@pytest.mark.slow
def test_without_a_device_the_error_names_the_cure(folder):
    done = run_code(READ, cwd=folder, env=NO_DEVICE)
    assert "SimulatorNotRestored: opencl: no OpenCL platform was found.\nThe cure:" in done.stderr


@pytest.mark.slow
def test_where_theano_leaves_functions_out_the_error_says_so(folder):
    done = run_code(READ, cwd=folder, flags="unpickle_function=False")
    assert done.stderr.strip().endswith("The cure: THEANO_FLAGS=unpickle_function=True")


def test_a_method_travels_with_its_simulator():
    predict = make().predict  # keeps the simulator alive
    again = pickled(predict)
    np.testing.assert_array_equal(again(X), predict(X))
    assert copy.copy(predict) is predict
    assert "predict of <SimulatorOCL step" in repr(again)
