"""Variables and nodes made during an optimization have the same attributes as those made at other times."""

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof.graph import nodes_constructed
from theano.scalar import get_scalar_type

from optdb.host.api.config import as_when_compiling
from optdb.host.api.session import optimizing


def untraced(make):
    """The result of `make` while a function is compiled, without the engine and with it."""
    with as_when_compiling():
        stock = make()
        with optimizing():
            return stock, make()


def fields(var):
    """The attributes of a variable in order, except its number."""
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
