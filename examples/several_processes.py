"""Use one compiled function in several processes, each of which makes a simulator of it on its own device.

    python examples/several_processes.py 2

The argument is the number of processes; 2 by default. The example needs dask (pip install '.[distributed]'). This
process compiles the function once, and sends it to the other processes as a pickle of Theano, which does not depend on
a device. Each process uses a part of the device, or the whole device if it cannot be divided. All processes train on
the same batches, so their results must be the same.
"""

import importlib
import sys

import numpy as np

import optdb  # before Theano
import theano
import theano.tensor as tt

SIZE = 20


def compile_step():
    """Return a training step that is compiled for the host."""
    rng = np.random.RandomState(0)
    x, y = tt.fmatrix("x"), tt.fvector("y")
    w = theano.shared(rng.randn(SIZE).astype("float32"), name="w")
    loss = tt.sqr(x.dot(w) - y).mean()
    updates = [(w, w - np.float32(0.05) * tt.grad(loss, w))]
    return theano.function([x, y], loss, updates=updates, mode=theano.Mode(linker="py", optimizer="fast_run"))


def batches(count=10):
    """Return batches of data; each call returns the same batches."""
    rng = np.random.RandomState(1)
    return [(rng.randn(32, SIZE).astype("float32"), rng.randn(32).astype("float32")) for _ in range(count)]


def train(step, part, parts):
    """Make a simulator, train, and return the results; each worker calls this function."""
    try:
        sim = optdb.SimulatorOCL(step, device=f"opencl[{part}/{parts}]")
    except RuntimeError:  # the device cannot be divided into so many parts
        sim = optdb.SimulatorOCL(step, device="opencl")
    losses = [float(sim(x, y)) for x, y in batches()]
    return sim.device, losses, sim.get("w")


def main():
    try:
        from dask.distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        sys.exit(f"{error}\nThe cure: pip install 'optdb[distributed]'")

    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    step = compile_step()
    # dask spawns its processes; forked processes would not work, because an OpenCL driver does not survive a fork.
    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, Client(cluster) as client:
        client.run(importlib.import_module, "optdb")  # before the unpickled function imports Theano
        names = list(client.scheduler_info()["workers"])
        futures = [
            client.submit(train, step, number, workers, workers=[name], pure=False)
            for number, name in enumerate(names, start=1)
        ]
        results = client.gather(futures)
    for name, (device, losses, w) in zip(names, results, strict=True):
        print(f"{name} on {device}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, sum of w {w.sum():.5f}")
        np.testing.assert_allclose(losses, results[0][1], rtol=1e-5)
        np.testing.assert_allclose(w, results[0][2], rtol=1e-4, atol=1e-5)
    print("All agree")


if __name__ == "__main__":
    main()
