"""Signatures decide which modules can be stored for other processes."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import FromFunctionOp
from theano.gof.cc import CLinker
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply
from theano.gof.op import Op

from optdb.host.theano.clinker.signatures import keep_without_props, signature
from tests.processes import output

mended = keep_without_props(CLinker.cmodule_key_)


class Doubling(Op):
    """Doubles a vector."""

    __props__ = ()

    def __init__(self, version=(1,)):
        self.version = version

    def make_node(self, x):
        return Apply(self, [tt.as_tensor_variable(x)], [tt.dvector()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] * 2

    def c_code_cache_version(self):
        return self.version


def key(node, cmodule_key_=mended):
    graph = FunctionGraph(node.inputs, node.outputs)
    return cmodule_key_(CLinker().accept(graph), graph, [])


def test_an_op_without_props_is_versioned():
    node = Doubling().make_node(tt.dvector())
    assert not key(node, getattr(CLinker.cmodule_key_, "__wrapped__", CLinker.cmodule_key_))[0]
    assert key(node)[0]


@pytest.mark.parametrize("version", [(), 0, None])
def test_an_op_without_a_version_is_not(version):
    assert not key(Doubling(version).make_node(tt.dvector()))[0]


def test_a_type_without_a_version_makes_a_node_unversioned(monkeypatch):
    node = Doubling().make_node(tt.dvector())
    monkeypatch.setattr(type(node.inputs[0].type), "c_code_cache_version", lambda self: ())
    assert not key(node)[0]


def test_a_key_that_theano_keeps_stays_the_same():
    node = (tt.dvector() + tt.dvector()).owner
    graph = FunctionGraph(node.inputs, node.outputs)
    linker = CLinker().accept(graph)
    theirs = linker.cmodule_key_(graph, [])
    assert theirs[0]
    assert mended(linker, graph, []) == theirs


@pytest.mark.slow
def test_the_version_of_code_in_files_is_the_same_in_each_process():
    code = """
        import optdb
        from optdb.host.theano.clinker import plug
        import theano.tensor as tt
        plug.install()
        print(tt.dmatrix().T.owner.op.c_code_cache_version())
    """
    first, second = (output(code, env={"PYTHONHASHSEED": seed}) for seed in "12")
    assert first == second


def sums():
    """Return nodes, some of which are computed by the same C code."""
    x, y = tt.dvectors("xy")
    return {
        "one": (x + y).owner,
        "same": (tt.dvector() + tt.dvector()).owner,
        "twice the same": (x + x).owner,
        "another type": (tt.fvector() + tt.fvector()).owner,
        "a constant": tt.add(x, tt.constant(np.array([1.0, 2.0]))).owner,
        "another constant": tt.add(x, tt.constant(np.array([1.0, 3.0]))).owner,
        "another op": (x * y).owner,
    }


def test_nodes_are_told_apart_by_what_their_code_depends_on():
    signatures = {name: signature(node, []) for name, node in sums().items()}
    assert signatures["one"] == signatures.pop("same")
    assert len(set(signatures.values())) == len(signatures)


def test_outputs_that_are_not_used_again_count():
    node = sums()["one"]
    assert signature(node, []) != signature(node, node.outputs)


def test_ops_of_others_are_shared_by_identity():
    first, second = Doubling(), Doubling()
    assert first == second
    x = tt.dvector()
    assert signature(first.make_node(x), []) == signature(first.make_node(x), [])
    assert signature(first.make_node(x), []) != signature(second.make_node(x), [])


def test_a_signature_keeps_no_op_of_others_alive():
    """The linker keeps signatures; a signature must not keep an op alive, because an op can hold large data."""
    x = tt.dvector()
    remembered = []
    for op in (Doubling(), FromFunctionOp(np.negative, [tt.dvector], [tt.dvector], None)):
        remembered.append((weakref.ref(op), signature(op(x).owner, [])))
    del op
    gc.collect()
    for op, key in remembered:
        assert op() is None
        assert key != signature(Doubling()(x).owner, [])


def test_openmp_counts():
    x = tt.dvector()
    plain, parallel = (theano.tensor.Elemwise(theano.scalar.exp) for _ in range(2))
    parallel.openmp = True
    assert plain == parallel
    assert signature(plain.make_node(x), []) != signature(parallel.make_node(x), [])
