"""The fake device "paper" wraps NumPy arrays, so that no host op accepts them by mistake."""

from __future__ import annotations

import numpy as np
import theano
import theano.tensor as tt
from theano.gof import Apply, Op, Type, Variable

import optdb
from optdb.lifters import Device, GraphToGPUDB, lift_inner, record_transfer, transfer_once


class PaperArray:
    """An array on paper."""

    def __init__(self, data):
        self.data = np.asarray(data)


class PaperType(Type):
    """The type of arrays in one context of the fake device; its contexts are called sheets."""

    __props__ = ("dtype", "broadcastable", "context_name")

    def __init__(self, dtype, broadcastable, context_name=None):
        self.dtype, self.broadcastable, self.context_name = dtype, tuple(broadcastable), context_name
        self.ndim = len(self.broadcastable)

    def filter(self, data, strict=False, allow_downcast=None):
        if isinstance(data, PaperArray) and data.data.dtype == self.dtype and data.data.ndim == self.ndim:
            return data
        raise TypeError(f"not on paper: {data!r}")

    def make_variable(self, name=None):
        return PaperVariable(self, name=name)


class PaperVariable(Variable):
    """A variable on paper; host ops that use it get a copy on the host."""

    def _as_TensorVariable(self):  # noqa: N802  Theano's name
        return FromPaper()(self)


class ToPaper(Op):
    __props__ = ("context_name",)

    def __init__(self, context_name):
        self.context_name = context_name

    def make_node(self, x):
        x = tt.as_tensor_variable(x)
        return Apply(self, [x], [PaperType(x.dtype, x.broadcastable, self.context_name)()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = PaperArray(inputs[0].copy())
        record_transfer(self, inputs[0].nbytes)


class FromPaper(Op):
    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [tt.TensorType(x.type.dtype, x.type.broadcastable)()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0].data.copy()
        record_transfer(self, inputs[0].data.nbytes)


class Recopy(Op):
    __props__ = ("context_name",)

    def __init__(self, context_name):
        self.context_name = context_name

    def make_node(self, x):
        return Apply(self, [x], [PaperType(x.type.dtype, x.type.broadcastable, self.context_name)()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0]


def as_paper(x, context_name):
    """Return `x` on a sheet."""
    if not isinstance(x.type, PaperType):
        return transfer_once((x, context_name), lambda: ToPaper(context_name)(x))
    return x if x.type.context_name == context_name else Recopy(context_name)(x)


class OnPaper(Op):
    """An op that computes any host op on paper; the inputs in `host_inputs` stay on the host."""

    __props__ = ("op", "context_name", "host_inputs")

    def __init__(self, op, context_name, host_inputs=()):
        self.op, self.context_name, self.host_inputs = op, context_name, tuple(host_inputs)

    def make_node(self, *inputs):
        inputs = [x if i in self.host_inputs else as_paper(x, self.context_name) for i, x in enumerate(inputs)]
        like = [
            x if isinstance(x.type, tt.TensorType) else tt.TensorType(x.type.dtype, x.type.broadcastable)()
            for x in inputs
        ]
        self.node = self.op.make_node(*like)
        outputs = [PaperType(out.type.dtype, out.type.broadcastable, self.context_name)() for out in self.node.outputs]
        return Apply(self, inputs, outputs)

    def perform(self, node, inputs, outputs):
        variables = [FromPaper()(x).type() if isinstance(x.type, PaperType) else x.type() for x in node.inputs]
        values = [x.data if isinstance(x, PaperArray) else x for x in inputs]
        on_host = theano.function(variables, self.op(*variables, return_list=True), mode=theano.Mode("py", None))
        for cell, value in zip(outputs, on_host(*values), strict=True):
            cell[0] = PaperArray(value)


PAPER = Device(
    name="paper",
    array_type=PaperType,
    from_host=ToPaper,
    to_host=FromPaper,
    between=Recopy,
    as_variable=as_paper,
    default_context=lambda: "sheet",
    unsupported_reason=lambda dtype, context_name: (
        "paper holds no complex numbers" if dtype.startswith("complex") else None
    ),
    weight=lambda op: 10.0 if isinstance(op, tt.Dot) else 0.0 if isinstance(op, tt.DimShuffle) else 1.0,
    source_ops=(tt.Alloc,),
)
paper_lifters = GraphToGPUDB(PAPER)


@optdb.register_topo("fast_run", db=paper_lifters, position=2)
@optdb.op_lifter(
    [tt.elemwise.Elemwise, tt.Dot, tt.elemwise.Sum, tt.DimShuffle],
    supports=lambda op, *_: getattr(op, "inplace_pattern", None) in (None, {}),
)
def any_op(op, context_name, inputs, outputs):
    return OnPaper(op, context_name)


@optdb.register_topo("fast_run", db=paper_lifters, position=3)
@optdb.op_lifter([tt.Alloc])
def alloc(op, context_name, inputs, outputs):
    return OnPaper(op, context_name, host_inputs=range(1, len(inputs)))


lift_inner(paper_lifters, PAPER, "fast_run")
