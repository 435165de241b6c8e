"""Show whether the device is used, by computing the exponential of many numbers repeatedly.

    THEANO_FLAGS=floatX=float32 python examples/check1.py
    THEANO_FLAGS=floatX=float32,optdb.device=opencl python examples/check1.py
    THEANO_FLAGS=floatX=float32,mode=OPENCL python examples/check1.py

The argument is the number of repetitions; 1000 by default. With the flag optdb.device, the shared variable is on the
device, and each call fetches the result to the host. check2.py leaves the result on the device. In mode OPENCL, the
shared variable is Theano's, and ``f.maker`` has the graph of the host; `optdb.explain` returns the graph that runs.
"""

import sys
import time

import numpy

import optdb  # before Theano
import theano.tensor as tt
from theano import config, function, shared

vlen = 10 * 30 * 768  # 10 x number of cores x threads per core
iters = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

rng = numpy.random.RandomState(22)
x = shared(numpy.asarray(rng.rand(vlen), config.floatX))
f = function([], tt.exp(x))
explanation = optdb.explain(f)
print(explanation.graph.toposort())
t0 = time.time()
for _ in range(iters):
    r = f()
t1 = time.time()
print(f"Looping {iters} times took", t1 - t0, "seconds")
print("Result is", r)
print("Used the host" if "host" in explanation.places else "Used the device")
