"""A profile shows the cost of each command of a call; a report shows where nodes run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op
from theano.ifelse import ifelse

import optdb
from optdb.opencl.registry import get_context
from optdb.runtime.arrays import empty, from_host, seen_by_host, to_host
from optdb.runtime.commands import EnqueueFill
from optdb.runtime.dispatch import enqueue, listened
from optdb.runtime.timing import Timer


def simulated(inputs, outputs, **kwargs):
    """Return a simulator of a function that the host computes in Python."""
    f = theano.function(inputs, outputs, mode=theano.Mode(linker="py", optimizer="fast_run"), **kwargs)
    return optdb.SimulatorOCL(f, device="dev0")


@as_op(itypes=[tt.fmatrix], otypes=[tt.fmatrix])
def upside_down(a):
    return a[::-1].copy()


@pytest.fixture
def step():
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((30, 20), "float32"), name="w")
    hidden = tt.tanh(x.dot(w))
    turned = upside_down(hidden)
    return simulated([x], [hidden.sum(axis=0), turned], updates=[(w, w - hidden[:1].sum())])


DATA = np.ones((10, 30), "float32")


def test_each_command_has_its_work(step):
    report = step.profile(DATA, n=3)
    product = [row for row in report.rows if row.op == "OpenCLDot22"]
    assert [row.operations for row in product if row.operations] == [2 * 10 * 30 * 20]
    (tanh,) = [row for row in report.rows if "tanh" in row.op.lower()]
    # The kernel reads and writes each element once, in place or to another array.
    assert (tanh.nbytes, tanh.operations, tanh.kind) == (2 * 4 * 200, 200, "launch")
    assert tanh.gigabytes_per_second == pytest.approx(tanh.nbytes / tanh.device * 1e-9)
    assert tanh.gigaflops == pytest.approx(200 / tanh.device * 1e-9)
    assert "tt.tanh(x.dot(w))" in tanh.line
    assert all(row.device >= 0 for row in report.rows if row.kind)
    assert all(row.host > 0 for row in report.rows)


def test_hosts_nodes_and_transfers_are_among_the_rows(step):
    report = step.profile(DATA)
    (host,) = [row for row in report.rows if row.where == "host" and "upside_down" in row.op]
    assert host.device is None and host.host > 0
    moved = [(row.op, row.kind, row.nbytes) for row in report.transfers]
    assert moved.count(("argument", "upload", DATA.nbytes)) == 1
    assert moved.count(("result", "download", 80)) == 1
    assert moved.count(("HostFromOpenCL", "download", 800)) == 1
    assert "upside_down" in str(report) and "matmul" in str(report)
    assert report.device_seconds == pytest.approx(sum(row.device for row in report.rows if row.kind))


def test_a_profile_changes_nothing(step):
    before, expected = step.get("w"), step.check(DATA).outputs
    step.profile(DATA, n=2)
    np.testing.assert_array_equal(step.get("w"), before)
    for _ in range(3):
        step.set("w", before)
        for got, wanted in zip(step(DATA), expected):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        step.profile(DATA, n=1)


def test_the_trace_is_one_that_browsers_read(step, tmp_path):
    report = step.profile(DATA, n=2)
    trace = json.loads(report.chrome_trace(tmp_path / "trace.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names >= {"host", "device"}
    assert len(spans) == len(report.spans) > 5
    assert all({"name", "cat", "ts", "dur", "pid", "tid"} <= set(span) for span in spans)
    assert all(span["dur"] >= 0 and isinstance(span["name"], str) and span["name"] for span in spans)
    on_device = [span for span in spans if span["cat"] == "device"]
    ends = [span["ts"] + span["dur"] for span in on_device]
    # The commands of the queue run in order. Times in microseconds may be wrong by a nanosecond.
    assert all(later["ts"] > end - 0.01 for end, later in zip(ends, on_device[1:]))
    assert any(span["args"].get("operations") == 2 * 10 * 30 * 20 for span in on_device)


@pytest.mark.slow
def test_loops_branches_and_added_methods():
    x = tt.fmatrix("x")
    w = theano.shared(np.eye(3, dtype="float32"), name="w")
    states, _ = theano.scan(lambda row, state: tt.tanh(row + state.dot(w)), [x], [tt.zeros(3, "float32")])
    sim = simulated([x], states[-1])
    sim.add_method("either", theano.function([x], ifelse(x.sum() > 0, x.dot(w), x - w)))
    data = np.random.RandomState(0).rand(4, 3).astype("float32")
    expected = sim(data)
    inside = [row for row in sim.profile(data).rows if "for" in row.op and row.kind == "launch"]
    assert len(inside) >= 4
    np.testing.assert_array_equal(sim(data), expected)
    for sign, op in ((1, "OpenCLDot22"), (-1, "OpenCLElemwise")):
        assert any(row.op.startswith(op) for row in sim.either.profile(sign * data[:3], n=2).rows)
    assert "results of a call" in str(sim.either.report(data[:3]))


def test_less_than_one_call_is_refused(step):
    with pytest.raises(ValueError, match="at least one"):
        step.profile(DATA, n=0)


def test_a_report_counts_what_crosses_and_says_why(step):
    report = step.report(DATA)
    assert report.traffic.nbytes["arguments of a call"] == DATA.nbytes
    assert report.traffic.nbytes["results of a call"] == 80
    assert report.traffic.transfers["HostFromOpenCL"] == 1 and report.traffic.nbytes["HostFromOpenCL"] == 800
    assert "stayed on the host" in str(report) and "upside_down" in str(report)
    assert f"1 times, {DATA.nbytes:,} bytes" in str(report)
    without = step.report()
    assert without.traffic is None and "lifted to opencl" in str(without)


def test_a_timer_keeps_order_with_what_is_done_beside_it():
    context = get_context("dev0")
    value = np.random.RandomState(0).rand(1 << 20)
    timer = Timer()
    for _ in range(5):
        timer.begin()
        with listened(timer):
            array = empty(context, value.shape, "float64")
            enqueue(EnqueueFill(context.queue, array.base_data, 0, array.nbytes, np.float64(3)))
            strided = array[::2]
            with seen_by_host(strided) as seen:
                assert (seen == 3).all()
            from_host(context, value, array)
            np.testing.assert_array_equal(to_host(array), value)
        timer.finish()
        assert [timed.command.kind for timed in timer.commands] == ["fill", "upload", "download"]
        assert [timed.command.moved_nbytes for timed in timer.commands] == [0 + value.nbytes] * 3
        assert all(timed.seconds > 0 for timed in timer.commands)
        np.testing.assert_array_equal(to_host(array), value)


def test_a_function_with_nothing_for_the_device():
    x = tt.lscalar("x")
    following = as_op(itypes=[tt.lscalar], otypes=[tt.lscalar])(lambda a: np.asarray(a + 1))
    sim = simulated([x], [following(x), x])
    report = sim.profile(3)
    assert report.device_seconds == 0 and report.transfers == []
    assert {row.where for row in report.rows} == {"host"}
    assert "on the host" in str(report)
    checked = sim.check(3)
    assert checked.ok and [int(value) for value in checked.outputs] == [4, 3]
    assert sim.report(3).traffic.nbytes["arguments of a call"] == 0


def test_results_that_stay_on_the_device_are_no_downloads():
    x = tt.fmatrix("x")
    sim = simulated([x], [(x * 2).transfer("dev0"), x.sum()])
    assert sim.report(DATA).traffic.nbytes["results of a call"] == 4
    assert [row.nbytes for row in sim.profile(DATA, n=1).rows if row.op == "result"] == [4]
