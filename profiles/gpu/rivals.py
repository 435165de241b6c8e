"""The same work by CuPy and JAX, on the GPU where they are: ``python rivals.py``.

It prints seconds as JSON, medians of several runs, each from an idle device to an idle device: ``exp(x) * y``,
sums of a matrix, its rows and its columns, a copy on the device, products of float32 matrices (CuPy's is cuBLAS, with
tensor cores off), and training steps of the residual net of ``profiles.models.residual`` and of the transformer of
``profiles.models.attention`` by JAX, once with products in float32 and once as JAX does it by default.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

#: Whom it measures.
NEEDED = ("cupy", "jax")
LARGE = 200_000_000
SIDE = 16384
PRODUCTS = (1024, 2048, 4096)
#: Sizes of `profiles.models.residual.cifar_resnet`.
RESNETS = ({"n": 3, "width": 16, "batch": 128, "size": 32}, {"n": 3, "width": 64, "batch": 128, "size": 32})
#: The same of `profiles.models.attention.transformer`.
TRANSFORMER = {"width": 512, "heads": 8, "tokens": 128, "batch": 32}


def median(run: Callable[[], Any], wait: Callable[[], None], repeat: int = 20) -> float:
    """Return the median of the seconds that `run` takes, until `wait` returns."""
    run()
    wait()
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def with_cupy() -> dict[str, float]:
    """Time elementwise work, sums, copies and products by CuPy."""
    import cupy

    wait = cupy.cuda.runtime.deviceSynchronize
    times = {}
    fused = cupy.ElementwiseKernel("T x, T y", "T z", "z = exp(x) * y", "exp_times")
    for n in (LARGE,):
        x, y = (cupy.random.random(n, dtype=np.float32) for _ in range(2))
        z = cupy.empty_like(x)
        times[f"exp(x)*y {n}"] = median(lambda x=x, y=y, z=z: fused(x, y, z), wait)
        times[f"copy {n}"] = median(lambda x=x, z=z: cupy.copyto(z, x), wait)
    x = cupy.random.random((SIDE, SIDE), dtype=np.float32)
    for name, axis in (("all", None), ("rows", 1), ("columns", 0)):
        times[f"sum {name} {SIDE}"] = median(functools.partial(x.sum, axis=axis), wait)
    z = cupy.empty_like(x)
    times[f"copy {SIDE}x{SIDE}"] = median(lambda: cupy.copyto(z, x), wait)
    for n in PRODUCTS:
        a, b = (cupy.random.random((n, n), dtype=np.float32) for _ in range(2))
        out = cupy.empty_like(a)
        times[f"matmul {n}"] = median(lambda a=a, b=b, out=out: cupy.matmul(a, b, out=out), wait)
    return times


def residual_with_jax(n: int, width: int, batch: int, size: int, precision: str) -> float:
    """Time a training step of the residual net by JAX.

    Parameters
    ----------
    n, width, batch, size : int
        As `profiles.models.residual.cifar_resnet` takes them.
    precision : str
        Of products: 'highest' is float32, 'default' is what JAX takes.
    """
    import jax
    import jax.numpy as jnp
    from jax import lax

    rng = np.random.RandomState(4)
    weights, scales = [], []

    def kernel(channels: tuple[int, int], side: int) -> int:
        shape = (channels[1], channels[0], side, side)
        weights.append((rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype("float32"))
        scales.append((np.ones(channels[1], "float32"), np.zeros(channels[1], "float32")))
        return len(weights) - 1

    def block(channels: int, wide: int, stride: int, project: bool) -> dict[str, Any]:
        narrow = wide // 4
        return {
            "a": (kernel((channels, narrow), 1), stride),
            "b": (kernel((narrow, narrow), 3), 1),
            "c": (kernel((narrow, wide), 1), 1),
            "shortcut": (kernel((channels, wide), 1), stride) if project else None,
        }

    stem = kernel((3, width), 3)
    blocks, channels = [], width
    for stage, wide in enumerate([4 * width, 8 * width, 16 * width]):
        for i in range(n):
            blocks.append(block(channels, wide, 2 if i == 0 and stage else 1, project=i == 0))
            channels = wide
    matrix = (rng.standard_normal((channels, 10)) * np.sqrt(2 / channels)).astype("float32")
    params = (weights, scales, matrix, np.zeros(10, "float32"))

    def layer(params: Any, x: Any, which: int, stride: int) -> Any:
        w = params[0][which]
        pad = w.shape[-1] // 2
        y = lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2)
        scale, offset = params[1][which]
        mean = y.mean((0, 2, 3), keepdims=True)
        variance = ((y - mean) ** 2).mean((0, 2, 3), keepdims=True)
        return (y - mean) * lax.rsqrt(variance + 1e-4) * scale[:, None, None] + offset[:, None, None]

    def loss(params: Any, x: Any, y: Any) -> Any:
        x = jax.nn.relu(layer(params, x, stem, 1))
        for b in blocks:
            h = jax.nn.relu(layer(params, x, *b["a"]))
            h = jax.nn.relu(layer(params, h, *b["b"]))
            h = layer(params, h, *b["c"])
            x = jax.nn.relu(h + (layer(params, x, *b["shortcut"]) if b["shortcut"] else x))
        logits = x.mean((2, 3)) @ params[2] + params[3]
        cost = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()
        return cost + 1e-4 * (sum((w**2).sum() for w in params[0]) + (params[2] ** 2).sum())

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, velocity: Any, x: Any, y: Any) -> Any:
        cost, grads = jax.value_and_grad(loss)(params, x, y)
        velocity = jax.tree.map(lambda v, g: 0.9 * v - 0.01 * g, velocity, grads)
        return jax.tree.map(lambda p, v: p + v, params, velocity), velocity, cost

    x = jnp.asarray(rng.standard_normal((batch, 3, size, size)).astype("float32"))
    y = jnp.asarray(rng.randint(0, 10, batch))
    with jax.default_matmul_precision(precision):
        return trained(step, (params, jax.tree.map(jnp.zeros_like, params)), x, y)[0]


def transformer_with_jax(
    width: int, heads: int, tokens: int, batch: int, precision: str, classes: int = 10
) -> tuple[float, list[float]]:
    """Time a training step of a transformer's block by JAX; return also the losses of its first steps.

    It has the first values and the data of the model in `profiles.models.attention`, and so its losses.

    Parameters
    ----------
    width, heads, tokens, batch, classes : int
        As `profiles.models.attention.transformer` takes them.
    precision : str
        Of products: 'highest' is float32, 'default' is what JAX takes.
    """
    import jax
    import jax.numpy as jnp

    rng = np.random.RandomState(12)
    each = width // heads

    def norm() -> tuple[Any, Any]:
        return np.ones(width, "float32"), np.zeros(width, "float32")

    def dense(narrow: int, wide: int) -> tuple[Any, Any]:
        return (narrow**-0.5 * rng.standard_normal((narrow, wide))).astype("float32"), np.zeros(wide, "float32")

    shapes = {"in": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    params = {name: dense(*shape) for name, shape in {**shapes, "classes": (width, classes)}.items()}
    params |= {name: norm() for name in ("before attention", "before dense", "last")}

    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        return centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * scale + offset

    def times(x: Any, matrix: Any, bias: Any) -> Any:
        return x @ matrix + bias

    def attention(p: Any, x: Any) -> Any:
        together = times(x, *p["in"]).reshape(batch, tokens, 3, heads, each).transpose(2, 0, 3, 1, 4)
        query, key, value = together
        weights = jax.nn.softmax(query @ key.swapaxes(-1, -2) * each**-0.5)
        return times((weights @ value).swapaxes(1, 2).reshape(batch, tokens, width), *p["out"])

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = x + attention(p, normalized(x, *p["before attention"]))
        x = x + times(jax.nn.gelu(times(normalized(x, *p["before dense"]), *p["up"])), *p["down"])
        logits = times(normalized(x, *p["last"]).mean(1), *p["classes"])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, moments: Any, x: Any, y: Any) -> Any:
        cost, grads = jax.value_and_grad(loss)(params, x, y)
        count, mean, square = moments
        count = count + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, square, grads)
        rate, unbias = 1e-3 / (1 - 0.9**count), 1 / (1 - 0.999**count)
        params = jax.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s * unbias) + 1e-8), params, mean, square)
        return params, (count, mean, square), cost

    rng_of_data = np.random.RandomState(13)
    x = jnp.asarray(rng_of_data.standard_normal((batch, tokens, width)).astype("float32"))
    y = jnp.asarray(rng_of_data.randint(0, classes, size=batch))
    zeros = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]
    with jax.default_matmul_precision(precision):
        return trained(step, (params, (jnp.zeros(()), *zeros)), x, y)


def trained(step: Callable[..., Any], state: Any, *data: Any) -> tuple[float, list[float]]:
    """Train by JAX for some steps; return the median of their seconds, and the losses.

    `step` takes the parts of the state and the data, and returns new parts and the loss.
    """
    import jax
    import jax.numpy as jnp

    state = jax.tree.map(jnp.asarray, state)
    seconds, losses = [], []
    for _ in range(23):
        start = time.perf_counter()
        *state, cost = step(*state, *data)
        losses.append(float(cost))
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:]), losses


def main() -> None:
    """Print all times as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        parser.error(f"{' and '.join(missing)} must be there. The cure: pip install {' '.join(missing)}")
    times: dict[str, float] = with_cupy()
    for sizes in RESNETS:
        for precision in ("highest", "default"):
            name = " ".join(f"{key}={value}" for key, value in sizes.items())
            times[f"jax resnet {name} {precision}"] = residual_with_jax(**sizes, precision=precision)
    for precision in ("highest", "default"):
        times[f"jax transformer {precision}"], _ = transformer_with_jax(**TRANSFORMER, precision=precision)
    print(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
