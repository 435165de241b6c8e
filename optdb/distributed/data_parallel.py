"""DataParallel: a compiled training function on several devices, with a copy of the state on each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.device.progress import shows_progress, started_bar
from optdb.distributed import checkpoints
from optdb.distributed.batches import axes_of, bound, parts_of
from optdb.distributed.plans import REDUCTIONS, LoosePlan, StepPlan, loose_plan, put_together
from optdb.distributed.replicas import Part, Prepared
from optdb.distributed.sharding.cutting import exact_plan
from optdb.distributed.threads import BUCKETS, ThreadGroup
from optdb.host.api.graph import Variable
from optdb.host.api.variables import SharedVariable
from optdb.host.theano.functions.compiled import Function
from optdb.host.theano.functions.originals import original_of
from optdb.runtime.sigint import without_sigint

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DataParallel", "StepFuture"]


class DataParallel:
    """Trains on several devices: each has a copy of the shared variables, and computes a part of each batch.

    It is called as the function is. By default steps are exact: results and next values are those of one device on the
    whole batch, within rounding. Sums over the batch (gradients among them) are found in the function's graph, and are
    summed up over workers, who then all apply the same update.

    Parameters
    ----------
    step : theano.compile.function_module.Function
        Inputs, outputs and updates; it stays as it is.
    client : distributed.Client, optional
        Whose workers compute. Without it, and without `devices`, workers are started on this machine, one for each
        device.
    devices : sequence of str, optional
        As `optdb.SimulatorOCL` takes them. Without a client, each is used by a thread of this process, and dask is not
        needed. With one, the workers of each host use them in turn.
    axes : mapping, optional
        For arguments, by name or variable, the axis along which they are split, or None if all workers get all of it.
        The default is axis 0; numbers are never split.
    outputs : mapping or sequence, optional
        For outputs, by number, how workers' values become one: 'mean' (weighted by the length of parts), 'sum' or
        'concatenate'. By default, an exact step returns what one device would, and one with `average_every` a
        mean.
    gradients : mapping, optional
        Shared variables to gradients, the variables of your graph, each a mean over the batch. For graphs in which they
        cannot be found.
    average_every : int, optional
        Workers make steps of their own, and their values are averaged after every so many: for any function.
    statistics : {'whole', 'parts'}
        Whether batch normalization uses statistics of the whole batch, for which workers wait for each other in each
        layer, or of each worker's part, which is quicker, and not what one device computes.
    checkpoint : str or Path, optional
        A folder. If it has a state, training goes on from there.
    checkpoint_every : int
        After how many steps the state is written there.
    timeout : float
        Seconds after which a worker that does not answer counts as dead.
    progress_bar : bool, optional
        Whether `train` shows one; by default, if standard error is a terminal.

    Raises
    ------
    NoGradients
        If an exact step cannot be found; the message names the variable.
    WorkerRefused
        If a worker's software or device is not the others'; the message says what differs.
    OSError
        If the folder of `checkpoint` cannot be written.

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
            raise TypeError(f"devices is a list, and not the text {devices!r}.\nThe cure: devices=[{devices!r}]")
        self._original = original_of(step)
        self._axes = axes_of(self._original.arguments, axes)
        reductions = _reductions(outputs, len(self._original.outputs))
        _check_options(statistics, average_every, gradients, checkpoint_every, timeout)
        self._plan: StepPlan | LoosePlan
        if average_every is None:
            buckets = BUCKETS if client is None and devices is not None else 0
            self._plan = exact_plan(self._original, self._axes, reductions, gradients, statistics == "parts", buckets)
        else:
            self._plan = loose_plan(self._original, reductions, average_every)
        self.progress_bar = progress_bar
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        if self._checkpoint is not None:
            checkpoints.check_folder(self._checkpoint)
        self._checkpoint_every = checkpoint_every
        self._is_closed = False
        #: Of the latest step whose results are there, for each worker: seconds by part of the step.
        self.seconds: list[dict[str, float]] = []
        if client is None and devices is not None:
            self._group = ThreadGroup(self._plan, list(devices), timeout)
        else:
            self._group = _cluster_group()(self._plan, client, devices, timeout, self._original.name or "step")
        self._resume()

    def _resume(self) -> None:
        """Go on from the latest state in the folder, if there is one."""
        path = None if self._checkpoint is None else checkpoints.latest(self._checkpoint)
        if path is not None:
            try:
                self._group.load(*checkpoints.load(path, self._plan.shared))
            except BaseException:
                self.close()
                raise

    # Training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make a step; arguments and results are the function's.

        Parameters
        ----------
        *args, **kwargs : array-like
            The arguments of the function, for the whole batch.

        Returns
        -------
        numpy.ndarray, list or dict
            The results for the whole batch, as the function returns them.

        Raises
        ------
        WorkerFailed
            If the step raised an error on a worker; the state is that before the step.
        StateLost
            If all workers died.
        """
        self._check_open()
        return self._begin(bound(self._original.arguments, args, kwargs)).wait()

    def run_async(self, /, *args: Any, **kwargs: Any) -> StepFuture:
        """Begin a step, and return before it is made: devices go from one step to the next without waiting for Python.

        Steps are made in the order in which they begin; few of them may be on their way. Only threads of this process
        go on meanwhile, those of `devices=` without a client: with dask's workers, the step is made first.

        Parameters
        ----------
        *args, **kwargs : array-like
            As for a call. They may change as soon as this returns.

        Returns
        -------
        StepFuture
            ``wait()`` returns the results.

        Raises
        ------
        WorkerFailed
            If a step before has raised an error, and its `wait` was not called.
        StateLost
            If all workers died.
        """
        self._check_open()
        values = bound(self._original.arguments, args, kwargs)
        # Each is copied once, and not each part of it.
        return self._begin([np.array(value) if isinstance(value, np.ndarray) else deepcopy(value) for value in values])

    def _begin(self, values: Sequence[Any]) -> StepFuture:
        def divide(count: int) -> list[Any]:
            return parts_of(self._original.arguments, values, self._axes, count)

        future = StepFuture(self._group.begin(divide), self._put_together)
        if self._checkpoint is not None and self._group.begun % self._checkpoint_every == 0:
            future.wait()
            self.save()
        return future

    def _put_together(self, parts: Sequence[Part], prepared: Sequence[Prepared]) -> Any:
        """Return the results of a step, and note how long its parts have taken."""
        self.seconds = [each.seconds for each in prepared]
        active = [(part, each) for part, each in zip(parts, prepared, strict=True) if part.rows]
        wholes = prepared[0].wholes
        results = put_together(
            self._plan.outputs, wholes, [each.own for _, each in active], [part.rows for part, _ in active]
        )
        return self._as_returned(results)

    def _as_returned(self, results: list[Any]) -> Any:
        if self._original.output_keys is not None:
            return dict(zip(self._original.output_keys, results, strict=True))
        return results[0] if self._original.returns_one else results

    def train(self, batches: Iterable[Any], total: int | None = None) -> list[Any]:
        """Make a step with each of some batches; return the results.

        A batch is taken while devices are at work on the one before, as by `run_async`.

        Parameters
        ----------
        batches : iterable
            Each a sequence of arguments, or a mapping of them by name.
        total : int, optional
            How many there are, for the progress bar, if they have no length.

        Returns
        -------
        list
            The results of each step.
        """
        total = total if total is not None else getattr(batches, "__len__", lambda: None)()
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
        """Take in workers that have appeared and are ready, as each step does.

        Returns
        -------
        list of str
            The names of all workers, as `workers` has them.
        """
        self._group.refresh()
        return self.workers

    # The state

    @property
    def steps(self) -> int:
        """How many steps the state has seen, those before a checkpoint among them."""
        return self._group.steps

    @property
    def workers(self) -> list[str]:
        """What the workers are called, in the order of their parts."""
        return self._group.names

    @property
    def addresses(self) -> list[str]:
        """The addresses of dask's workers, in the order of their parts; names of threads where there are none."""
        return self._group.addresses

    @property
    def shared(self) -> list[SharedVariable]:
        """Theano's shared variables of which workers have copies."""
        return list(self._plan.shared)

    def get(self, which: Any) -> Any:
        """Return a copy of a shared variable's value.

        Parameters
        ----------
        which : SharedVariable or str
            Theano's variable, or its name.

        Returns
        -------
        numpy.ndarray
            An array of the variable's dtype and present shape.

        Raises
        ------
        KeyError
            If there is no such variable, or several have the name.
        """
        self._check_open()
        return self._group.state()[self._index(which)]

    def set(self, which: Any, value: Any) -> None:
        """Give all copies of a shared variable another value; Theano's stays as it is.

        Parameters
        ----------
        which : SharedVariable or str
            Theano's variable, or its name.
        value : array-like
            A value that the variable's type admits.

        Raises
        ------
        KeyError
            If there is no such variable, or several have the name.
        TypeError
            If the variable's type does not admit the value.
        """
        self._check_open()
        index = self._index(which)
        state = self._group.state()
        state[index] = self._plan.shared[index].type.filter(value, allow_downcast=None)
        self._group.load(state, self.steps)

    def sync_to_theano(self) -> None:
        """Let Theano's shared variables have the values of the workers."""
        self._check_open()
        state = self._group.state()

        def store() -> None:
            for shared, value in zip(self._plan.shared, state, strict=True):
                shared.set_value(value, borrow=True)

        without_sigint(store)

    def sync_from_theano(self) -> None:
        """Let all workers have the values of Theano's shared variables."""
        self._check_open()
        self._group.load([shared.get_value() for shared in self._plan.shared], self.steps)

    def save(self) -> Path:
        """Write the state into the folder `checkpoint`.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ValueError
            If no folder was given.
        """
        self._check_open()
        if self._checkpoint is None:
            raise ValueError("there is no folder to write to.\nThe cure: DataParallel(step, checkpoint='folder')")
        return checkpoints.save(self._checkpoint, self._group.state(), self.steps, self._plan.shared)

    def _index(self, which: Any) -> int:
        shared = self._plan.shared
        matches = [i for i, var in enumerate(shared) if var is which] or [
            i for i, var in enumerate(shared) if isinstance(which, str) and var.name == which
        ]
        if len(matches) != 1:
            what = "several shared variables are" if matches else "no shared variable is"
            names = ", ".join(str(var.name) for var in shared)
            raise KeyError(f"{what} called {which!r}; there are: {names}. Give Theano's variable itself")
        return matches[0]

    # The end

    def close(self) -> None:
        """Release the devices' memory, and end what was started; what was not synchronized or saved is lost."""
        self._is_closed = True
        self._group.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(
                "this DataParallel was closed, and its workers with it.\nThe cure: make another one; with the same "
                "checkpoint= it goes on from the state that was saved last"
            )

    def __enter__(self) -> DataParallel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = self._original.name or "of a function"
        return f"<DataParallel {name} on {len(self.workers)} workers: {self.steps} steps>"


class StepFuture:
    """A step of `DataParallel` that may not be made yet."""

    def __init__(self, step: Any, put_together: Callable[[Any, Any], Any]) -> None:
        #: None once the results are here.
        self._step: Any = step
        self._put_together = put_together
        self._results: Any = None

    def done(self) -> bool:
        """Tell whether workers are done with the step.

        Returns
        -------
        bool
            Whether `wait` would return within the time that a result needs to get to the host.
        """
        return self._step is None or self._step.is_computed

    def wait(self) -> Any:
        """Wait for the step, and those before it; return the results, each time the same ones.

        Returns
        -------
        numpy.ndarray, list or dict
            The results for the whole batch, as the function returns them.

        Raises
        ------
        WorkerFailed
            If the step raised an error on a worker, or the one before has failed; the state is that before the step.
        """
        if self._step is not None:
            self._results = self._put_together(*self._step.end())
            self._step = None
        return self._results

    def __repr__(self) -> str:
        return f"<step of a DataParallel, {'made' if self.done() else 'on its way'}>"


def _cluster_group() -> Any:
    """Return what leads dask's workers: dask is imported on demand."""
    try:
        from optdb.distributed.clusters import cluster_group
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"DataParallel without devices= needs dask.distributed ({error}).\n"
            "The cure: pip install 'optdb[distributed]'; or devices=[...], for threads of this process"
        ) from error
    return cluster_group


def _reductions(outputs: Mapping[int, str] | Sequence[str | None] | None, count: int) -> dict[int, str]:
    """Return the outputs' reductions by number; raise `ValueError` for what is none."""
    pairs = outputs.items() if isinstance(outputs, Mapping) else enumerate(outputs or ())
    reductions = {number: reduction for number, reduction in pairs if reduction is not None}
    for number, reduction in reductions.items():
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"outputs={{{number}: {reduction!r}}}: it has to be one of {', '.join(map(repr, REDUCTIONS))}"
            )
        if not 0 <= number < count:
            raise ValueError(f"outputs= names output {number}, and the function has {count}, counted from 0")
    return reductions


def _check_options(
    statistics: str, average_every: int | None, gradients: object, checkpoint_every: int, timeout: float
) -> None:
    if statistics not in ("whole", "parts"):
        raise ValueError(f"statistics is 'whole' or 'parts', and not {statistics!r}")
    if average_every is not None and average_every < 1:
        raise ValueError(f"average_every is a number of steps, 1 or more, and not {average_every}")
    if average_every is not None and gradients is not None:
        raise ValueError(
            "gradients= is for exact steps, and average_every= is for steps of each worker: give one of them"
        )
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every is a number of steps, 1 or more, and not {checkpoint_every}")
    if not timeout > 0:
        raise ValueError(f"timeout is in seconds, and more than 0, and not {timeout}")
