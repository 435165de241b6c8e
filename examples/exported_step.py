"""Write a training step to a file with Theano, and run the file without Theano.

    python examples/exported_step.py write step.optdb
    python examples/exported_step.py run step.optdb

`write` compiles a small network, makes some steps on a device, and exports them. `run` loads the file and makes more
steps; it only imports NumPy and PyOpenCL. Without arguments, one process calls both functions.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import optdb


def data(n, seed):
    """Return random points in a square, and whether each point is within a circle."""
    x = np.random.default_rng(seed).uniform(-1, 1, (n, 2)).astype("float32")
    return x, (np.hypot(*x.T) < 0.7).astype("int32")


def write(path):
    """Compile a training step and a prediction, make ten steps, and write both into a file."""
    import theano
    import theano.tensor as tt

    rng = np.random.default_rng(1)
    x, y, rate = tt.fmatrix("x"), tt.ivector("y"), tt.fscalar("rate")
    w, v = (
        theano.shared(rng.normal(0, 0.5, size).astype("float32"), name)
        for size, name in (((2, 32), "w"), ((32, 2), "v"))
    )
    b = theano.shared(np.zeros(32, "float32"), "b")
    p = tt.nnet.softmax(tt.tanh(x.dot(w) + b).dot(v))
    loss = -tt.log(p)[tt.arange(y.shape[0]), y].mean()
    updates = [(q, tt.cast(q - rate * theano.grad(loss, q), "float32")) for q in (w, b, v)]
    step = optdb.SimulatorOCL(theano.function([x, y, rate], loss, updates=updates, name="train"))
    step.add_method("predict", theano.function([x], p.argmax(axis=1)))
    for seed in range(10):
        loss = step(*data(128, seed), 1)
    for report in step.export(path, {None: [(*data(128, 0), 1)], "predict": [(data(1000, 0)[0],), (data(1, 0)[0],)]}):
        print(report)
    print("written after ten steps, loss", loss)


def run(path):
    """Load the file, make more steps, and print how often the network is right."""
    step = optdb.load(path)
    print(step)
    for seed in range(10, 300):
        loss = step(*data(128, seed), rate=1)
    x, y = data(1000, 0)
    print("loss", loss, "right", np.mean(step.predict(x) == y), "theano" in sys.modules)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("write", "run"):
        {"write": write, "run": run}[sys.argv[1]](sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "step.optdb")
            run(Path(folder) / "step.optdb")
