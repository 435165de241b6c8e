"""Like check2.py, but the next call may overwrite the result.

    THEANO_FLAGS=floatX=float32,optdb.device=opencl,allow_gc=False python examples/check3.py

With ``Out(..., borrow=True)`` and the flag allow_gc=False, the function returns the memory that it works in, and the
next call overwrites this memory. No call allocates memory. To keep a result beyond the next call, copy it:
``r.copy()``.
"""

import sys
import time

import numpy

import optdb  # before Theano
import theano.tensor as tt
from optdb.opencl import as_opencl_variable, infer_context_name
from theano import Out, config, function, shared

vlen = 10 * 30 * 768  # 10 x number of cores x threads per core
iters = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

rng = numpy.random.RandomState(22)
x = shared(numpy.asarray(rng.rand(vlen), config.floatX))
f = function([], Out(as_opencl_variable(tt.exp(x), infer_context_name(x)), borrow=True))
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
