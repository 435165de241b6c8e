"""Is the device used? The exponential of many numbers, over and over.

    THEANO_FLAGS=floatX=float32 python examples/check1.py
    THEANO_FLAGS=floatX=float32,optdb.device=opencl python examples/check1.py
    THEANO_FLAGS=floatX=float32,mode=OPENCL python examples/check1.py

Takes the number of times as an argument; 1000 by default. With the flag optdb.device the shared variable lives on the
device; the result is fetched at each call. check2.py leaves it there. In mode OPENCL the shared variable is Theano's,
and the graph in ``f.maker`` is the host's: `optdb.explain` knows which one runs.
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
