"""The device ops themselves declare which of their inputs are host numbers."""

from __future__ import annotations

import theano
import theano.tensor as tt
from theano.tensor.extra_ops import CumOp
from theano.tensor.nnet.abstract_conv import AbstractConv2d_gradWeights
from theano.tensor.nnet.bn import AbstractBatchNormTrain
from theano.tensor.signal.pool import Pool
from theano.tensor.sort import SortOp, TopKOp

from optdb.lifters.device import Device
from optdb.opencl import OPENCL
from optdb.opencl.ops.axes import OpenCLTopKOp
from optdb.opencl.ops.conv import OpenCLConvGradWeights
from optdb.opencl.ops.counterpart_base import counterpart_of


def host_inputs(op, number, device: Device = OPENCL):
    return [i for i in range(number) if device.is_host_input(op, i)]


def test_the_plan_of_a_lift_asks_the_counterpart():
    assert host_inputs(tt.basic.Join(), 4) == [0]
    assert host_inputs(tt.basic.Split(2), 3) == [1, 2]
    assert host_inputs(SortOp("quicksort"), 2) == [1]
    assert host_inputs(CumOp(0, "add"), 1) == []
    assert host_inputs(Pool(ndim=2), 4) == [1, 2, 3]
    assert host_inputs(tt.blas.Gemm(False), 5) == [1, 4]
    assert host_inputs(AbstractBatchNormTrain((0,)), 7) == [3, 4]
    assert host_inputs(AbstractConv2d_gradWeights(), 3) == [2]
    assert host_inputs(tt.extra_ops.RepeatOp(0), 2) == [1]
    assert host_inputs(tt.exp, 1) == []


def test_a_child_of_the_hosts_op_has_its_parents_counterpart():
    assert counterpart_of(AbstractConv2d_gradWeights) is OpenCLConvGradWeights
    assert counterpart_of(theano.tensor.blas_c.CGemv) is counterpart_of(theano.tensor.blas.Gemv)
    assert counterpart_of(theano.Op) is None


def test_parameters_are_taken_over():
    op = OpenCLTopKOp.like(TopKOp(1, False, "int16", True, False))
    assert isinstance(op, OpenCLTopKOp)
    assert (op.axis, op.sorted, op.idx_dtype, op.return_values, op.return_indices) == (1, False, "int16", True, False)
