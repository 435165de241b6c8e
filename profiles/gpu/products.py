"""Measures the times of matrix products on a GPU, and compares them with cuBLAS: ``python -m profiles.gpu.products``.

Times are microseconds per product, when the same product is repeated without waiting for each result. For optdb, this
is the time of a step in a call of many steps, including packing operands and adding partial sums. PyTorch calls cuBLAS;
the time of cuBLAS is the mean over the products in a CUDA graph.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import click
import numpy as np
import theano
import theano.tensor as tt
from rich.table import Table

from profiles import terminal
from profiles.gpu.kernels import time_theano


@dataclass(frozen=True)
class Multiplication:
    """A product of two matrices or of two batches; `left` and `right` say whether that operand is stored transposed."""

    m: int
    n: int
    k: int
    batch: int = 0
    left: bool = False
    right: bool = False

    def __str__(self) -> str:
        """Return a text with the batch size, `m`, `n`, `k`, and which operands are transposed."""
        batch = f"{self.batch} x " if self.batch else ""
        layout = {(False, False): "", (True, False): ", left T", (False, True): ", right T", (True, True): ", both T"}
        return f"{batch}{self.m} x {self.n} x {self.k}{layout[self.left, self.right]}"

    @property
    def operations(self) -> int:
        """The total number of multiplications and additions."""
        return 2 * self.m * self.n * self.k * max(self.batch, 1)

    def operands(self, dtype: str) -> list[np.ndarray]:
        """Return the operands as they are stored."""
        lengths = [(self.k, self.m) if self.left else (self.m, self.k)]
        lengths.append((self.n, self.k) if self.right else (self.k, self.n))
        batch = (self.batch,) if self.batch else ()
        draw = np.random.default_rng(1)
        return [draw.random((*batch, *shape), dtype=np.float32).astype(dtype) for shape in lengths]

    def as_read(self, a: Any, b: Any, transpose: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Return the operands of the product; transpose those that are stored transposed."""
        return transpose(a) if self.left else a, transpose(b) if self.right else b


SQUARE = [Multiplication(side, side, side) for side in (512, 1024, 2048, 4096, 8192)]
LAYERS = [
    Multiplication(4096, 4096, 4096, left=True),
    Multiplication(4096, 4096, 4096, right=True),
    Multiplication(2048, 2048, 2048, right=True),
    Multiplication(1024, 4096, 4096),
    Multiplication(4096, 4096, 1024, left=True),
    Multiplication(3200, 10000, 512),
    Multiplication(3200, 512, 10000, right=True),
    Multiplication(512, 10000, 3200, left=True),
    Multiplication(3200, 2048, 512),
    Multiplication(3200, 512, 2048, right=True),
    Multiplication(512, 2048, 3200, left=True),
    Multiplication(128, 512, 512),
    Multiplication(4096, 1536, 512),
    Multiplication(128, 128, 64, batch=256, right=True),
    Multiplication(128, 64, 128, batch=256),
]
SMALL = [Multiplication(16, 8, 32), Multiplication(8, 8, 16, batch=3, right=True)]
#: Maps a column of the table to a pair: the value of ``optdb.matmul_precision``, and the dtype.
PRECISIONS = {"float32": ("highest", "float32"), "TF32": ("default", "float32"), "float16": ("default", "float16")}


def time_optdb(product: Multiplication, precision: str, device: str, repeat: int) -> float:
    """Return the microseconds that optdb takes for a step that computes a product."""
    flag, dtype = PRECISIONS[precision]
    a, b = (theano.shared(value) for value in product.operands(dtype))
    order = (0, 2, 1) if product.batch else (1, 0)
    a, b = product.as_read(a, b, lambda x: x.dimshuffle(*order))
    with theano.change_flags(**{"optdb.matmul_precision": flag}):
        return 1e3 * time_theano(tt.batched_dot(a, b) if product.batch else a.dot(b), device, repeat)[0]


def time_cublas(product: Multiplication, precision: str, repeat: int) -> float:
    """Return the microseconds that cuBLAS takes per product, in a CUDA graph of `repeat` products."""
    import torch

    torch.set_float32_matmul_precision("high" if precision == "TF32" else "highest")
    a, b = (torch.from_numpy(value).cuda() for value in product.operands(PRECISIONS[precision][1]))
    a, b = product.as_read(a, b, lambda x: x.transpose(-1, -2))
    z = torch.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            torch.matmul(a, b, out=z)
    times = []
    for _ in range(6):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(1e3 * first.elapsed_time(last) / repeat)
    return statistics.median(times[1:])


def measure(rows: list[Multiplication], device: str, repeat: int, cublas: bool) -> Iterator[list[str]]:
    """Yield the table cells of each row; the last row has geometric means."""
    shares: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for product in rows:
        cells = [str(product)]
        for precision in PRECISIONS:
            ours = time_optdb(product, precision, device, repeat)
            cells.append(f"{ours:.1f}")
            if cublas:
                theirs = time_cublas(product, precision, repeat)
                shares[precision].append(theirs / ours)
                cells += [f"{theirs:.1f}", f"{theirs / ours:.0%}"]
        yield cells
    if cublas:
        means = (f"{statistics.geometric_mean(of_rows):.0%}" for of_rows in shares.values())
        yield ["geometric mean", *(cell for mean in means for cell in ("", "", mean))]


@click.command()
@terminal.device_option("gpu", "Which device.")
@terminal.count_option("--repeat", 100, "How often each is done.")
@click.option("--cublas/--no-cublas", default=find_spec("torch") is not None, help="Whether to compare with PyTorch.")
@click.option("--small", is_flag=True, help="Small operands, to try whether it works.")
def main(device: str, repeat: int, cublas: bool, small: bool) -> None:
    """Measure matrix products in three precisions."""
    if cublas and find_spec("torch") is None:
        raise click.UsageError("PyTorch is missing. The cure: pip install torch, or --no-cublas")
    per_precision = (["optdb, µs", "cuBLAS, µs", "share"] if cublas else ["optdb, µs"] for _ in PRECISIONS)
    named = (f"{name}: {column}" for name, columns in zip(PRECISIONS, per_precision, strict=True) for column in columns)
    table = Table("rows x columns x terms", *named)
    for cells in measure(SMALL if small else SQUARE + LAYERS, device, repeat, cublas):
        table.add_row(*cells)
    terminal.console().print(table)


if __name__ == "__main__":
    main()
