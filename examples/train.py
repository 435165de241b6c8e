"""Train a small net: a script for Theano that does not mention optdb, to be run by `python -m optdb run`.

    python -m optdb run examples/train.py --epochs 3
    python -m optdb run --no-topo examples/train.py --epochs 3
    THEANO_FLAGS=optdb.device=opencl,floatX=float32 python -m optdb run examples/train.py

It prints the seconds that `theano.function` took and, for each epoch, the loss and the accuracy.
"""

import argparse
import itertools
import time

import numpy as np
import theano
import theano.tensor as tt

BATCH = 100


def data(n, seed):
    """Return n points in a square, and the quarter of a ring that contains each point (0 outside the ring)."""
    points = np.random.RandomState(seed).uniform(-1, 1, (n, 2))
    radius, angle = np.hypot(*points.T), np.arctan2(*points.T)
    quarter = 1 + np.floor((angle + np.pi) / (np.pi / 2)).clip(0, 3)
    labels = np.where((radius > 0.3) & (radius < 0.8), quarter, 0)
    return points.astype(theano.config.floatX), labels.astype("int32")


def build(widths, rate=0.2, momentum=0.9):
    """Return a function that makes a training step, and a function that predicts labels."""
    rng = np.random.RandomState(0)
    x, y = tt.matrix("x"), tt.ivector("y")
    layer, parameters = x, []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        weights = rng.randn(inputs, outputs) / np.sqrt(inputs)
        w = theano.shared(weights.astype(theano.config.floatX), f"w{i}")
        b = theano.shared(np.zeros(outputs, theano.config.floatX), f"b{i}")
        parameters += [w, b]
        layer = (tt.tanh(layer) if i else layer).dot(w) + b
    probabilities = tt.nnet.softmax(layer)
    loss = tt.nnet.categorical_crossentropy(probabilities, y).mean()
    updates = []
    for parameter, gradient in zip(parameters, tt.grad(loss, parameters)):
        velocity = theano.shared(np.zeros_like(parameter.get_value()))
        step = tt.cast(momentum * velocity - rate * gradient, theano.config.floatX)
        updates += [(velocity, step), (parameter, parameter + step)]
    train = theano.function([x, y], loss, updates=updates)
    return train, theano.function([x], probabilities.argmax(axis=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs

    start = time.perf_counter()
    train, predict = build([2, 64, 64, 5])
    print(f"theano.function took {time.perf_counter() - start:.1f} s")

    points, labels = data(5000, seed=1)
    unseen, answers = data(1000, seed=2)
    for epoch in range(epochs):
        batches = range(0, len(points), BATCH)
        loss = np.mean([train(points[i : i + BATCH], labels[i : i + BATCH]) for i in batches])
        right = np.mean(predict(unseen) == answers)
        print(f"epoch {epoch + 1}: loss {loss:.3f}, right {right:.1%}")


if __name__ == "__main__":
    main()
