"""Variables and nodes made during an optimization have the same attributes as those made at other times."""

import linecache

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof.graph import nodes_constructed
from theano.scalar import get_scalar_type

from optdb.host.api.config import as_when_compiling
from optdb.host.api.session import optimizing, remove_all
from optdb.host.theano.speedups import fresh


def untraced(make):
    """Call `make` as during a compilation, without and with optdb's patches; return both results."""
    with as_when_compiling():
        stock = make()
        with optimizing():
            return stock, make()


def fields(var):
    """Return the attributes of a variable in order, except its number."""
    return [(name, vars(value) if name == "tag" else value) for name, value in vars(var).items() if name != "auto_name"]


def named_clone():
    x = tt.dvector("x")
    x.tag.note = "kept"
    return x.clone()


@pytest.mark.parametrize(
    "make",
    [
        tt.dmatrix,
        lambda: tt.dmatrix("x"),
        get_scalar_type("int8"),
        lambda: get_scalar_type("int8")("x"),
        named_clone,
        lambda: tt.exp(tt.dvector()).clone(),
    ],
)
def test_variables_are_theanos(make):
    stock, ours = untraced(make)
    assert type(ours) is type(stock)
    assert fields(ours) == fields(stock)
    assert ours.auto_name.startswith("auto_")
    assert ours.auto_name != stock.auto_name


def test_constants_have_no_frames():
    stock, ours = untraced(lambda: tt.TensorConstant(tt.dvector, np.ones(2)))
    assert stock.tag.trace == ours.tag.trace == []


@pytest.mark.parametrize("make", [lambda x: x + 1, lambda x: x * tt.dmatrix(), lambda x: x.dimshuffle(0, "x")])
def test_nodes_are_theanos(make):
    x = tt.dvector()
    stock, ours = untraced(lambda: make(x).owner)
    assert list(vars(ours)) == list(vars(stock))
    assert ours.op == stock.op
    assert vars(ours.tag) == vars(stock.tag)
    assert ours.outputs[0].owner is ours
    assert ours.outputs[0].index == 0


def test_cloned_nodes_are_theanos():
    node = tt.exp(tt.dvector("x")).owner
    node.tag.note = ["kept"]
    stock, ours = untraced(node.clone)
    assert list(vars(ours)) == list(vars(stock))
    assert (ours.op, ours.inputs) == (stock.op, stock.inputs)
    assert ours.inputs is not node.inputs
    assert dict(fields(ours.outputs[0])) == {**dict(fields(stock.outputs[0])), "owner": ours}
    assert ours.outputs[0] is not node.outputs[0]
    assert vars(ours.tag) == vars(stock.tag)
    assert ours.tag is not node.tag


def test_tags_of_another_class_are_copied():
    class Tag:
        pass

    x = tt.dvector()
    x.tag = Tag()
    _, ours = untraced(x.clone)
    assert type(ours.tag) is Tag
    assert ours.tag is not x.tag


def test_traces_are_recorded_where_they_are_asked_for():
    with theano.change_flags(**{"traceback.limit": 3}), optimizing():
        made = tt.dvector(), tt.exp(tt.dvector()), tt.constant(np.ones(3))
    assert all(var.tag.trace[0] for var in made)


def test_observers_see_all_variables():
    x = tt.dvector()
    with as_when_compiling(), optimizing(), nodes_constructed() as seen:
        made = [tt.exp(x), x.clone(), get_scalar_type("int8")(), tt.dscalar()]
    assert [var for var in seen if var in made] == made


def test_double_precision_is_warned_of():
    x = tt.fvector()
    with theano.change_flags(warn_float64="raise"), as_when_compiling(), optimizing():
        assert tt.exp(x).dtype == "float32"
        with pytest.raises(Exception, match="warn_float64"):
            tt.cast(x, "float64")


def test_names_are_strings():
    with as_when_compiling(), optimizing(), pytest.raises(TypeError):
        tt.dvector(3)


def test_test_values_are_computed():
    x = tt.dvector()
    x.tag.test_value = np.ones(2)
    with theano.change_flags(compute_test_value_opt="raise"), as_when_compiling(), optimizing():
        y = tt.exp(x) + 1
    np.testing.assert_array_equal(y.tag.test_value, np.exp([1.0, 1.0]) + 1)


def test_tags_are_copied_with_what_they_hold():
    x = tt.matrix()
    x.tag.note = ["kept"]
    with optimizing():
        copied = x.clone()
    assert type(copied.tag) is type(x.tag)
    assert copied.tag is not x.tag
    assert copied.tag.note is x.tag.note
    copied.tag.other = 1
    assert not hasattr(x.tag, "other")


class Tagged:
    def __init__(self):
        self.tag = theano.gof.utils.scratchpad()


def traced_by(function, *args):
    return function(Tagged(), *args).tag.trace


def both_traces(*args):
    """Call Theano's function and optdb's function from one line; return the stack traces that they record."""
    return [traced_by(function, *args) for function in (fresh._stock_add_tag_trace, fresh.add_tag_trace)]


@pytest.mark.parametrize("limit", [None, -1, -2, 0, 1, 2, 8, 1000])
@pytest.mark.parametrize("flag", [-1, 0, 1, 8])
def test_traces_are_theanos(limit, flag):
    def deep(levels):
        return both_traces(limit) if levels == 0 else deep(levels - 1)

    with theano.change_flags(**{"traceback.limit": flag}):
        for levels in (0, 3, 20):
            stock, ours = deep(levels)
            assert ours == stock


def test_traces_of_code_without_a_file_are_theanos():
    names = {"both_traces": both_traces}
    exec(compile("def call():\n    return both_traces(4)\n", "<a cell>", "exec"), names)
    stock, ours = names["call"]()
    assert ours == stock and ours[0][0] == ("<a cell>", 2, "call", None)


def test_traces_begin_outside_of_theano():
    """The innermost frames are left out if they are in Theano's own files; Theano's tests count as user code."""
    names = {"function": None}
    source = "def call(*args):\n    return function(*args)\n"
    files = [
        f"/site/theano/{name}" for name in ("tensor/var.py", "scalar/basic.py", "scalar/basic_scipy.py", "printing.py")
    ]
    for file in (*files, "C:\\theano\\gof\\op.py", "/site/theano/tensor/tests/test_var.py"):
        exec(compile(source, file, "exec"), names)
        stock, ours = (
            [names.update(function=function), names["call"](Tagged(), 2).tag.trace][1]
            for function in (fresh._stock_add_tag_trace, fresh.add_tag_trace)
        )
        assert [entry[0] for entry in ours[0]] == [entry[0] for entry in stock[0]]


def test_traces_follow_a_file_that_changes(tmp_path):
    path = tmp_path / "cell.py"
    for text in ("both_traces(1)", "both_traces(1)  # changed", "(both_traces)(1)"):
        path.write_text(f"found = {text}\n")
        linecache.checkcache(str(path))
        names = {"both_traces": lambda limit: both_traces(limit + 1)}
        exec(compile(path.read_text(), str(path), "exec"), names)
        stock, ours = names["found"]
        assert ours == stock
        inner = {"add": fresh.add_tag_trace, "thing": Tagged()}
        exec(compile("found = add(thing, 1)\n", str(path), "exec"), inner)
        assert inner["found"].tag.trace == [[(str(path), 1, "<module>", f"found = {text}")]]


def test_variables_outside_of_a_session_are_traced_as_by_theano():
    def traced():
        x = tt.dvector()
        return [x, (x + 1).sum(), tt.grad(tt.exp(x).sum(), x)]

    def frames(variable):
        """Return a variable's trace without the frames of this test, which are on different lines."""
        (trace,) = variable.tag.trace
        return [entry for entry in trace if entry[2] != "test_variables_outside_of_a_session_are_traced_as_by_theano"]

    found = []
    for is_patched in (False, True):
        remove_all()
        if is_patched:
            with optimizing():
                pass
        found.append(list(map(frames, traced())))
    remove_all()
    assert found[0] == found[1] and all(found[0])
