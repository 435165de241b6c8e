"""`DataParallel` runs a compiled training function on several devices, each with a copy of the state."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optdb.device.progress import shows_progress, started_bar
from optdb.distributed import checkpoints
from optdb.distributed.batches import axes_of, bound, parts_of
from optdb.distributed.replica import Part, Prepared
from optdb.distributed.sharding.cutting import synchronous_training
from optdb.distributed.threads import BUCKETS, ThreadGroup
from optdb.distributed.training_functions import (
    LocalTraining,
    SynchronousTraining,
    checked_reductions,
    local_training,
    put_together,
)
from optdb.host.api.graph import Variable
from optdb.host.api.variables import SharedVariable
from optdb.host.theano.functions.compiled import Function
from optdb.host.theano.functions.originals import original_of
from optdb.runtime.sigint import without_sigint
from optdb.unknown_names import UnknownName

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DataParallel", "StepFuture"]


class DataParallel:
    """Trains on several devices, each with a copy of the shared variables and a part of each batch.

    Call a `DataParallel` with the same arguments as the function that it trains. By default, steps are exact: except
    for rounding, results and next values are the same as when one device computes the whole batch. Sums over the batch,
    such as gradients, are found in the function's graph and all-reduced. All workers then apply the same update.

    Parameters
    ----------
    step : theano.compile.function_module.Function
        The compiled function with its inputs, outputs and updates; it is not modified.
    client : distributed.Client, optional
        The client whose workers run the steps. If neither a client nor `devices` is given, this machine runs a worker
        for each device.
    devices : sequence of str, optional
        Names of devices, as for `optdb.SimulatorOCL`. Without a client, each device is used by a thread of this
        process, and dask is not needed. With a client, the devices are assigned to each host's workers in turn.
    axes : mapping, optional
        Maps an argument's name or variable to the axis along which it is split, or to None to send the whole argument
        to all workers. The default is axis 0; scalars are never split.
    outputs : mapping or sequence, optional
        Maps an output's index to the way in which the workers' values are combined: 'mean' (weighted by the lengths of
        the parts), 'sum' or 'concatenate'. By default, an exact step returns the same results as one device. With
        `average_every`, the default is 'mean'.
    gradients : mapping, optional
        Maps shared variables to their gradients: variables in your graph that are means over the batch. Needed if the
        gradients cannot be found in the graph.
    average_every : int, optional
        If given, workers run independent steps, and their values are averaged after every `average_every` steps. This
        works for any function.
    statistics : {'whole', 'parts'}
        Whether batch normalization uses statistics of the whole batch or of each worker's part. With 'whole', workers
        wait for each other in each layer. 'parts' is faster, but its results differ from those on one device.
    checkpoint : str or Path, optional
        A folder for checkpoints. If it contains a state, training continues from there.
    checkpoint_every : int
        Number of steps between two checkpoints.
    timeout : float
        Time in seconds after which a worker that does not answer counts as dead.
    progress_bar : bool, optional
        Whether `train` shows a progress bar; by default, only if standard error is a terminal.

    Raises
    ------
    NoGradients
        If no exact step can be derived; the message names the variable.
    WorkerRefused
        If a worker's software or device differs from the other workers'; the message says how.
    OSError
        If the folder `checkpoint` is not writable.

    Examples
    --------
    >>> with DataParallel(f, devices=["gpu0", "gpu1"]) as train:    # doctest: +SKIP
    ...     for x, y in batches:
    ...         loss = train(x, y)
    ...     train.sync_to_theano()
    """

    def __init__(
        self,
        step: Function,
        client: Client | None = None,
        devices: Sequence[str] | None = None,
        *,
        axes: Mapping[Any, int | None] | None = None,
        outputs: Mapping[int, str] | Sequence[str | None] | None = None,
        gradients: Mapping[SharedVariable, Variable] | None = None,
        average_every: int | None = None,
        statistics: str = "whole",
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 100,
        timeout: float = 120.0,
        progress_bar: bool | None = None,
    ) -> None:
        if isinstance(devices, str):
            raise TypeError(f"devices must be a list, not the string {devices!r}.\nThe cure: devices=[{devices!r}]")
        self._original = original_of(step)
        self._axes = axes_of(self._original.arguments, axes)
        reductions = checked_reductions(outputs, len(self._original.outputs))
        _check_options(statistics, average_every, gradients, checkpoint_every, timeout)
        self._training: SynchronousTraining | LocalTraining
        if average_every is None:
            buckets = BUCKETS if client is None and devices is not None else 0
            self._training = synchronous_training(
                self._original, self._axes, reductions, gradients, statistics == "parts", buckets
            )
        else:
            self._training = local_training(self._original, reductions, average_every)
        self.progress_bar = progress_bar
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        if self._checkpoint is not None:
            checkpoints.check_folder(self._checkpoint)
        self._checkpoint_every = checkpoint_every
        self._is_closed = False
        #: For the latest finished step, one dict per worker; each dict maps phases of the step to seconds.
        self.seconds: list[dict[str, float]] = []
        if client is None and devices is not None:
            self._group = ThreadGroup(self._training, list(devices), timeout)
        else:
            self._group = _cluster_group()(self._training, client, devices, timeout, self._original.name or "step")
        self._resume()

    def _resume(self) -> None:
        """Continue from the latest checkpoint, if there is one."""
        path = None if self._checkpoint is None else checkpoints.latest(self._checkpoint)
        if path is not None:
            try:
                self._group.load(*checkpoints.load(path, self._training.shared))
            except BaseException:
                self.close()
                raise

    # Training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step; arguments and results are those of the function.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of the function, for the whole batch.

        Returns
        -------
        numpy.ndarray, list or dict
            The results for the whole batch, in the same form as the function's results.

        Raises
        ------
        WorkerFailed
            If the step raised an error on a worker; the state is the same as before the step.
        StateLost
            If all workers died.
        """
        self._check_open()
        return self._begin(bound(self._original.arguments, args, kwargs)).wait()

    def run_async(self, /, *args: Any, **kwargs: Any) -> StepFuture:
        """Start a step and return before it has finished, so that devices do not wait for Python between steps.

        Steps run in the order in which they were started; only a few may be pending. Only threads of this process
        (`devices=` without a client) run steps in the background. With dask workers, this method returns when the step
        is complete.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of the function. They may change as soon as this method returns.

        Returns
        -------
        StepFuture
            Its ``wait()`` returns the results.

        Raises
        ------
        WorkerFailed
            If an earlier step raised an error and its `wait` was not called.
        StateLost
            If all workers died.
        """
        self._check_open()
        return self._begin(bound(self._original.arguments, args, kwargs), keep=True)

    def _begin(self, values: Sequence[Any], keep: bool = False) -> StepFuture:
        divide = functools.partial(parts_of, self._original.arguments, values, self._axes)
        future = StepFuture(self._group.begin(divide, keep), self._put_together)
        if self._checkpoint is not None and self._group.begun % self._checkpoint_every == 0:
            future.wait()
            self.save()
        return future

    def _put_together(self, parts: Sequence[Part], prepared: Sequence[Prepared]) -> Any:
        """Return a step's results, and record its times."""
        self.seconds = [each.seconds for each in prepared]
        own = [each.own for part, each in zip(parts, prepared, strict=True) if part.rows]
        lengths = [part.rows for part in parts if part.rows]
        results = put_together(self._training.outputs, prepared[0].wholes, own, lengths)
        if self._original.output_keys is not None:
            return dict(zip(self._original.output_keys, results, strict=True))
        return results[0] if self._original.returns_one else results

    def train(self, batches: Iterable[Any], total: int | None = None) -> list[Any]:
        """Run a step with each batch and return the results.

        The next batch is prepared while devices compute the current batch, as with `run_async`.

        Parameters
        ----------
        batches : iterable
            Batches, each a sequence of arguments or a mapping of names to arguments.
        total : int, optional
            Number of batches, which the progress bar needs if `batches` has no length.

        Returns
        -------
        list
            The results of each step.
        """
        if total is None and isinstance(batches, Sized):
            total = len(batches)
        bar = started_bar(total) if shows_progress(self.progress_bar) else None
        results: list[Any] = []
        begun: deque[StepFuture] = deque()

        def take_first() -> None:
            results.append(begun.popleft().wait())
            if bar is not None:
                bar.update(bar.task_ids[0], advance=1)

        try:
            for batch in batches:
                begun.append(self.run_async(**batch) if isinstance(batch, Mapping) else self.run_async(*batch))
                if len(begun) > 1:
                    take_first()
            while begun:
                take_first()
        finally:
            if bar is not None:
                bar.stop()
        return results

    def refresh(self) -> list[str]:
        """Admit new workers that are ready; each step also admits such workers.

        Returns
        -------
        list of str
            The names of all workers, as in `workers`.
        """
        self._group.refresh()
        return self.workers

    # The state

    @property
    def steps(self) -> int:
        """The number of steps that led to the current state, including the steps before a loaded checkpoint."""
        return self._group.steps

    @property
    def workers(self) -> list[str]:
        """The names of the workers, in the order of their parts."""
        return list(self._group.names)

    @property
    def addresses(self) -> list[str]:
        """The addresses of dask's workers, or the names of threads, in the order of their parts."""
        return list(self._group.addresses)

    @property
    def shared(self) -> list[SharedVariable]:
        """Theano's shared variables, of which each worker has a copy."""
        return list(self._training.shared)

    def get(self, which: Any) -> Any:
        """Return a copy of a shared variable's value.

        Parameters
        ----------
        which : SharedVariable or str
            Theano's variable or its name.

        Returns
        -------
        numpy.ndarray
            An array with the variable's dtype and current shape.

        Raises
        ------
        KeyError
            If there is no such variable, or if several variables have that name.
        """
        self._check_open()
        return self._group.state()[self._index(which)]

    def set(self, which: Any, value: Any) -> None:
        """Set all copies of a shared variable to a value; Theano's variable does not change.

        Parameters
        ----------
        which : SharedVariable or str
            Theano's variable or its name.
        value : array-like
            A value that the variable's type accepts.

        Raises
        ------
        KeyError
            If there is no such variable, or if several variables have that name.
        TypeError
            If the variable's type does not accept the value.
        """
        self._check_open()
        index = self._index(which)
        state = self._group.state()
        state[index] = self._training.shared[index].type.filter(value, allow_downcast=None)
        self._group.load(state, self.steps)

    def sync_to_theano(self) -> None:
        """Copy the workers' values to Theano's shared variables."""
        self._check_open()
        without_sigint(self._store, self._group.state())

    def _store(self, state: Sequence[Any]) -> None:
        for shared, value in zip(self._training.shared, state, strict=True):
            shared.set_value(value, borrow=True)

    def sync_from_theano(self) -> None:
        """Copy the values of Theano's shared variables to all workers."""
        self._check_open()
        self._group.load([shared.get_value() for shared in self._training.shared], self.steps)

    def save(self) -> Path:
        """Write the state to a file in the folder `checkpoint`.

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        ValueError
            If `checkpoint` was not given.
        """
        self._check_open()
        if self._checkpoint is None:
            raise ValueError(
                "there is no checkpoint folder to write to.\nThe cure: DataParallel(step, checkpoint='folder')"
            )
        return checkpoints.save(self._checkpoint, self._group.state(), self.steps, self._training.shared)

    def _index(self, which: Any) -> int:
        shared = self._training.shared
        matches = [i for i, var in enumerate(shared) if var is which] or [
            i for i, var in enumerate(shared) if isinstance(which, str) and var.name == which
        ]
        if len(matches) != 1:
            what = "several shared variables are" if matches else "no shared variable is"
            names = ", ".join(str(var.name) for var in shared)
            raise UnknownName(f"{what} named {which!r}; the names are: {names}. Pass Theano's variable itself")
        return matches[0]

    # The end

    def close(self) -> None:
        """Release device memory, and end threads and processes. Values that were not synchronized or saved are lost."""
        self._is_closed = True
        self._group.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(
                "this DataParallel and its workers were closed.\n"
                "The cure: create another one; with the same checkpoint= it continues from the last saved state"
            )

    def __enter__(self) -> DataParallel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = self._original.name or "of a function"
        return f"<DataParallel {name} on {len(self.workers)} workers: {self.steps} steps>"


class StepFuture:
    """A step of `DataParallel`, which may still be running."""

    def __init__(self, step: Any, put_together: Callable[[Any, Any], Any]) -> None:
        #: The pending step; None once the results are available.
        self._step: Any = step
        self._put_together = put_together
        self._results: Any = None

    def done(self) -> bool:
        """Return whether all workers have finished computing the step.

        Returns
        -------
        bool
            Whether `wait` has nothing left to wait for except copying the results to the host.
        """
        return self._step is None or self._step.is_computed

    def wait(self) -> Any:
        """Wait for this step and return its results; later calls return the same objects.

        Returns
        -------
        numpy.ndarray, list or dict
            The results for the whole batch, in the same form as the function's results.

        Raises
        ------
        WorkerFailed
            If this step or the previous step raised an error on a worker; the state is the same as before that step.
        """
        if self._step is not None:
            self._results = self._put_together(*self._step.end())
            self._step = None
        return self._results

    def __repr__(self) -> str:
        return f"<step of a DataParallel, {'done' if self.done() else 'in progress'}>"


def _cluster_group() -> Any:
    """Import dask and return the class that controls dask workers."""
    try:
        from optdb.distributed.clusters import cluster_group
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"DataParallel without devices= needs dask.distributed ({error}).\n"
            "The cure: pip install 'optdb[distributed]'; or devices=[...], for threads of this process"
        ) from error
    return cluster_group


def _check_options(
    statistics: str, average_every: int | None, gradients: object, checkpoint_every: int, timeout: float
) -> None:
    if statistics not in ("whole", "parts"):
        raise ValueError(f"statistics must be 'whole' or 'parts', not {statistics!r}")
    if average_every is not None and average_every < 1:
        raise ValueError(f"average_every must be a number of steps, 1 or more, not {average_every}")
    if average_every is not None and gradients is not None:
        raise ValueError(
            "gradients= is for exact steps, average_every= for independent steps of each worker: pass only one of them"
        )
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be a number of steps, 1 or more, not {checkpoint_every}")
    if not timeout > 0:
        raise ValueError(f"timeout must be a number of seconds above 0, not {timeout}")
