"""Like check1.py, but the result stays on the device: the function returns a device array.

    THEANO_FLAGS=floatX=float32,optdb.device=opencl python examples/check2.py

`as_opencl_variable` asks for the result on the device. The transfer that it adds is removed once exp itself is computed
on the device. The values are fetched when NumPy makes an array of them.
"""

import sys
import time

import numpy

import optdb  # before Theano
import theano.tensor as tt
from optdb.opencl import as_opencl_variable, infer_context_name
from theano import config, function, shared

vlen = 10 * 30 * 768  # 10 x number of cores x threads per core
iters = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

rng = numpy.random.RandomState(22)
x = shared(numpy.asarray(rng.rand(vlen), config.floatX))
f = function([], as_opencl_variable(tt.exp(x), infer_context_name(x)))
explanation = optdb.explain(f)
print(explanation.graph.toposort())
t0 = time.time()
for _ in range(iters):
    r = f()
t1 = time.time()
print(f"Looping {iters} times took", t1 - t0, "seconds")
print("Result is", type(r))
print("Numpy result is", numpy.asarray(r))
print("Used the host" if "host" in explanation.places else "Used the device")
