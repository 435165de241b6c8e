"""The errors of data-parallel training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optdb.host.api.graph import Apply

__all__ = ["Aborted", "NoGradients", "NotSplittable", "StateLost", "WorkerFailed", "WorkerRefused", "WorkerTimeout"]


class Aborted(RuntimeError):
    """A step was given up because another worker failed."""


class NotSplittable(Exception):
    """A node computes something that parts of a batch cannot be put together to.

    Parameters
    ----------
    node : Apply or None
        Of the user's graph; None for an input, which no node computes.
    reason : str
        Why not.
    """

    def __init__(self, node: Apply | None, reason: str) -> None:
        what = "" if node is None else f"{node.op} of {', '.join(map(str, node.inputs))}: "
        super().__init__(f"{what}{reason}")
        self.node = node
        self.reason = reason


class NoGradients(ValueError):
    """Exact training needs sums over workers, and the function's graph does not show which."""


class WorkerRefused(RuntimeError):
    """A worker's software or device is not the others'."""


class WorkerFailed(RuntimeError):
    """A step raised an error on a worker; copies of the state are as before the step."""


class WorkerTimeout(TimeoutError):
    """A worker has not answered in time."""


class StateLost(RuntimeError):
    """All workers died, and the state with them."""
