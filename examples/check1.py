"""Is the device used? The exponential of many numbers, over and over.

    THEANO_FLAGS=floatX=float32 python examples/check1.py
    THEANO_FLAGS=floatX=float32,optdb.device=opencl python examples/check1.py

Takes the number of times as an argument; 1000 if there is none. The shared variable lives on the device, if there is
one; the result is fetched at each call. check2.py leaves it there.
"""

import sys
import time

import numpy

import optdb  # noqa: F401  before Theano
import theano.tensor as tt
from theano import config, function, shared

vlen = 10 * 30 * 768  # 10 x number of cores x threads per core
iters = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

rng = numpy.random.RandomState(22)
x = shared(numpy.asarray(rng.rand(vlen), config.floatX))
f = function([], tt.exp(x))
print(f.maker.fgraph.toposort())
t0 = time.time()
for _ in range(iters):
    r = f()
t1 = time.time()
print(f"Looping {iters} times took", t1 - t0, "seconds")
print("Result is", r)
if numpy.any([isinstance(node.op, tt.Elemwise) for node in f.maker.fgraph.toposort()]):
    print("Used the cpu")
else:
    print("Used the gpu")
