"""The errors of data-parallel training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optdb.host.api.graph import Apply

__all__ = ["Aborted", "NoGradients", "NotSplittable", "StateLost", "WorkerFailed", "WorkerRefused", "WorkerTimeout"]


class Aborted(RuntimeError):
    """A step was given up because another worker failed."""


class NotSplittable(Exception):
    """A node's results for a batch cannot be combined from its results for parts of the batch.

    Parameters
    ----------
    node : Apply or None
        A node in the user's graph; None for an input, which has no node.
    reason : str
        The reason.
    """

    def __init__(self, node: Apply | None, reason: str) -> None:
        what = "" if node is None else f"{node.op} of {', '.join(map(str, node.inputs))}: "
        super().__init__(f"{what}{reason}")
        self.node = node
        self.reason = reason


class NoGradients(ValueError):
    """Exact training needs sums over workers, but these cannot be found in the function's graph."""


class WorkerRefused(RuntimeError):
    """A worker's software or device differs from the others'."""


class WorkerFailed(RuntimeError):
    """A step raised an error on a worker; all copies of the state are the same as before the step."""


class WorkerTimeout(TimeoutError):
    """A worker has not answered in time."""


class StateLost(RuntimeError):
    """All workers have died, and the state is lost."""
