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
    node : Apply
        Of the user's graph.
    reason : str
        Why not.
    """

    def __init__(self, node: Apply, reason: str) -> None:
        super().__init__(f"{node.op} of {', '.join(map(str, node.inputs))}: {reason}")
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
