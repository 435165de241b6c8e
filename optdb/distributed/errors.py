"""The exceptions that data-parallel training raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optdb.host.api.graph import Apply

__all__ = ["Aborted", "NoGradients", "NotSplittable", "StateLost", "WorkerFailed", "WorkerRefused", "WorkerTimeout"]


class Aborted(RuntimeError):
    """Raised if a step was aborted because another worker failed."""


class NotSplittable(Exception):
    """Raised if a node's results for a batch cannot be computed from its results for parts of the batch.

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
    """Raised if exact training needs sums over workers that it cannot find in the function's graph."""


class WorkerRefused(RuntimeError):
    """Raised if a worker's software or device differs from those of the other workers."""


class WorkerFailed(RuntimeError):
    """Raised if a step failed on a worker; all copies of the state are unchanged."""


class WorkerTimeout(TimeoutError):
    """Raised if a worker does not answer in time."""


class StateLost(RuntimeError):
    """Raised if all workers have died and the state is lost."""
