"""Calls that begin after the caller's own commands must see the results of these commands."""

from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op
from theano.ifelse import ifelse

import optdb
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator.execution.calls import TrustedMethod
from optdb.runtime.library import cl
from optdb.runtime.scripts import Script, can_script

ROWS = 5
UNUSED = {"on_unused_input": "ignore"}


@as_op(itypes=[tt.dvector], otypes=[tt.dscalar])
def largest_by_python(x):
    return np.asarray(x.max())


@as_op(itypes=[tt.lscalar], otypes=[tt.dvector])
def ones_by_python(count):
    return np.ones(int(count))


GRAPHS = {
    "kernels alone": lambda x, n, w: tt.tanh(x * w).sum(),
    "a host node that reads the state": lambda x, n, w: (x * largest_by_python(w + 1)).sum(),
    "the state by the host alone": lambda x, n, w: largest_by_python(w) + n,
    "host nodes of arguments": lambda x, n, w: (ones_by_python(n) * w[0]).sum() + x.sum(),
    "lengths": lambda x, n, w: (x * w).sum() / tt.cast(n * x.shape[0], "float64"),
    "a branch that the state chooses": lambda x, n, w: ifelse(tt.gt(w.sum(), 0), (x * w).sum(), x.max() - 7),
    "a loop": lambda x, n, w: theano.scan(lambda a: tt.tanh(a + w), outputs_info=x, n_steps=3)[0][-1].sum() + n,
}


@pytest.fixture
def device(monkeypatch):
    context = get_context(context_of())
    monkeypatch.setattr(context, "profile", replace(context.profile, shares_host_memory=False))
    return context_of()


@pytest.mark.parametrize("way", ["by a script", "by the plan"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_call_sees_what_comes_before_its_first_commands(graph, way, device):
    rng = np.random.RandomState(0)
    x, n = tt.dvector("x"), tt.lscalar("n")
    w, v = theano.shared(rng.standard_normal(ROWS), "w"), theano.shared(np.zeros(()), "v")
    out = GRAPHS[graph](x, n, w)
    f = theano.function([x, n], out, updates=[(v, v + out)], mode=theano.Mode("py", "fast_run"), **UNUSED)
    total, led = 0.0, []
    with optdb.SimulatorOCL(f, device) as sim:
        if not can_script():
            pytest.skip("no scripts")
        method = TrustedMethod(sim)
        for number in range(16):
            value = float(rng.standard_normal())

            def before(first, value=value):
                cell = sim._state.find(w).cell
                if isinstance(cell[0], np.ndarray):
                    cell[0][...] = value
                else:
                    fill = np.float64(value), cell[0].offset, cell[0].nbytes
                    cl.enqueue_fill_buffer(cell[0].queue, cell[0].base_data, *fill)
                if way == "by the plan" or first.needs_python:
                    return False
                led.append(len(first))
                script = Script()
                script.enqueue(first)
                script.run()
                return True

            given = rng.standard_normal(ROWS), np.array(number % 3 + 1)
            # If the caller's commands change a value on the host, the call sees the change only if it waits for them.
            on_host = sim._state.find(w).array_type is None
            (found,) = method(*given, before=before, at_once=on_host)
            sim.get(v)
            w.set_value(np.full(ROWS, value))
            wanted = float(theano.function([x, n], out, mode=theano.Mode("py", None), **UNUSED)(*given))
            total += wanted
            np.testing.assert_allclose(found, wanted, rtol=1e-10)
        np.testing.assert_allclose(sim.get(v), total, rtol=1e-10)
    assert way == "by the plan" or graph != "kernels alone" or max(led) > 0
