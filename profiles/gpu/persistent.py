"""Tests and times persistent launches on a GPU: ``python -m profiles.gpu.persistent --help`` lists the commands."""

from __future__ import annotations

import logging
import statistics
import time
from typing import Any

import click
import numpy as np
import theano
import theano.tensor as tt

import optdb
from optdb.device.launches import persistent
from optdb.device.launches.programs import PERSISTENT
from optdb.opencl.registry import context_of, get_context
from optdb.runtime.grid_barriers import try_barriers
from optdb.runtime.timing import seconds_of, timed_beside
from profiles import models, terminal
from profiles.gpu.steps import SIZES, elapsed_ms, last_plan
from profiles.steps_of_simulators import batches_of, compiled
from profiles.training import difference

#: Number of calls; all their results are compared.
_CALLS = 4
#: The operations that random functions consist of.
_STEPS = (
    lambda a, b: tt.tanh(a) + b,
    lambda a, b: a * b.sum(axis=0),
    lambda a, b: a - b.mean(axis=1, keepdims=True),
    lambda a, b: a.dot(b.T).dot(a) / 1000,
    lambda a, b: tt.switch(a > 0, b, -a),
    lambda a, b: tt.concatenate([a, b])[: a.shape[0]],
    lambda a, b: tt.inc_subtensor(a[:, 1:], b[:, :-1]),
    lambda a, b: a[::-1] + tt.nnet.softmax(b),
    lambda a, b: tt.dot(a.T, b).dot(tt.nnet.sigmoid(a).T).T / 1000,
    lambda a, b: tt.concatenate([a, b] * 5)[5 : 5 + a.shape[0]],
    lambda a, b: a.dot(sum((a + n).T.dot(tt.tanh(b)) for n in range(9))) / 10000,
    lambda a, b: tt.inc_subtensor(tt.inc_subtensor(tt.zeros_like(a)[:, :20], b[:, 20:])[:, 20:], a[:, 20:] * b[:, :20]),
)


def say(*words: Any) -> None:
    """Print a line without buffering, because a process may be killed at any time."""
    print(*words, flush=True)


def measured(name: str, sizes: dict[str, int], device: str, repeat: int) -> None:
    """Compare the results and the times of a model's steps with and without persistent launches."""
    begun = time.perf_counter()
    function = compiled(models.build(name, **sizes))
    (data,) = batches_of(models.build(name, **sizes), 1)
    say(f"{name}: compiled in {time.perf_counter() - begun:.1f} s")
    found, simulators = {}, {}
    for wish in ("never", "always"):
        with theano.change_flags(**{"optdb.persistent_launches": wish}):
            sim = simulators[wish] = optdb.SimulatorOCL(function, device)
            results = []
            for number in range(_CALLS):
                begun = time.perf_counter()
                results.append([np.array(value) for value in _as_list(sim(*data))])
                say(f"{name} {wish}: call {number} took {time.perf_counter() - begun:.2f} s")
            numbered = enumerate(function.get_shared())
            found[wish] = results, {f"{number} {var}": np.array(sim.get(var)) for number, var in numbered}
            plan = last_plan(sim)
            assert plan is not None  # the calls above have made a plan
            say(f"{name} {wish}: {plan.commands} commands, {plan.enqueued} enqueued")
    _compare(name, found["never"], found["always"])
    for wish in ("never", "always", "never", "always"):
        sim = simulators[wish]
        step, call = _times_ms(sim, data, repeat)
        say(f"{name} {wish}: {step:.3f} ms a step of many, {call:.3f} a call")
    for wish, sim in simulators.items():
        _time_commands(name, wish, last_plan(sim))


def _times_ms(sim: Any, data: list[np.ndarray], repeat: int) -> tuple[float, float]:
    """Return the milliseconds of a step in a call of many steps, and the milliseconds of a call of one step."""
    sim.call_n_times(5, *data)
    step = min(elapsed_ms(lambda: sim.call_n_times(repeat, *data)) / repeat for _ in range(3))
    return step, statistics.median(elapsed_ms(lambda: sim(*data)) for _ in range(repeat))


def _time_commands(name: str, wish: str, plan: Any) -> None:
    """Run each command of a plan on the device, and print the times of the commands."""
    commands = [command for step in plan._steps for command in step.commands]
    if not commands:
        return
    queue = timed_beside(commands[0].queue)
    commands[0].queue.finish()
    seconds: dict[str, list[float]] = {}
    launches = []
    for command in commands:
        event = command.enqueue_on(queue)
        event.wait()
        key = command.name.partition("__")[0]
        seconds.setdefault(key, []).append(seconds_of(event))
        if key == PERSISTENT:
            launches.append((command.args[4], seconds_of(event)))
    total = sum(map(sum, seconds.values()))
    say(f"{name} {wish}: {total * 1e6:.0f} us on the device, of {len(commands)} commands")
    for key, times in sorted(seconds.items(), key=lambda item: -sum(item[1]))[:12]:
        say(f"    {sum(times) * 1e6:8.0f} us, {len(times):4} x {statistics.median(times) * 1e6:7.1f} us  {key}")
    for phases, took in launches[:12]:
        say(f"    a launch of {phases} phases: {took * 1e6:.0f} us, {took * 1e6 / int(phases):.2f} a phase")


def _compare(name: str, one: Any, other: Any) -> None:
    """Print how much the results and the shared variables of two runs differ."""
    for number, (a, b) in enumerate(zip(one[0], other[0])):
        differences = [difference(x, y) for x, y in zip(a, b)]
        say(
            f"{name}: results of call {number} differ by {max(differences, default=0):.2e}",
            [float(np.sum(x)) for x in b][:2],
        )
    by_variable = {var: difference(one[1][var], other[1][var]) for var in one[1]}
    worst = sorted(by_variable.items(), key=lambda item: -item[1])[:5]
    right = max(by_variable.values(), default=0) < 1e-2
    say(
        f"{name}: shared variables differ by",
        {var: f"{value:.1e}" for var, value in worst},
        "RIGHT" if right else "WRONG",
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


@click.group()
@click.option("--log", is_flag=True, help="Print what the persistent kernels report.")
def main(log: bool) -> None:
    """Try persistent launches."""
    # A launch that hangs is aborted after a second or two.
    persistent._POLLS = 1 << 21
    if log:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message).600s")


@main.command()
@terminal.device_option("gpu")
def trial(device: str) -> None:
    """Test each implementation of a barrier over all work groups."""
    context = get_context(context_of(device))
    say(context.profile.name, context.device.max_compute_units, "units;", context.device.opencl_c_version)
    for name, finding in try_barriers(context, until_right=False).items():
        say(f"{name}: {finding}")


@main.command()
@click.argument("name", type=click.Choice(sorted(SIZES)))
@terminal.device_option("gpu")
@terminal.count_option("--repeat", 20, "Number of steps of each kind.")
@click.option("--small", is_flag=True, help="Use the model's small size, for a quick test.")
def model(name: str, device: str, repeat: int, small: bool) -> None:
    """Compare the results and times of a model's training steps with and without persistent launches."""
    measured(name, {} if small else SIZES[name], device, repeat)


@main.command()
@terminal.device_option("gpu")
@click.option("--seed", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--count", type=int, default=20, show_default=True, help="Number of functions.")
def random(device: str, seed: int, count: int) -> None:
    """Compare random functions."""
    for number in range(seed, seed + count):
        rng = np.random.RandomState(number)
        x = tt.fmatrix("x")
        w = theano.shared(rng.uniform(-1, 1, (70, 40)).astype("float32"), "w")
        values = [w, x]
        for choice in rng.randint(0, len(_STEPS), rng.randint(4, 14)):
            values.append(_STEPS[choice](values[-1], values[rng.randint(len(values))]))
        outputs = [values[-1], values[len(values) // 2]]
        mode = theano.Mode(linker="py", optimizer="fast_run").excluding("fusion")
        function = theano.function([x], outputs, updates=[(w, tt.tanh(values[-2] + w))], mode=mode)
        data = [rng.uniform(-1, 1, (70, 40)).astype("float32") for _ in range(_CALLS)]
        got = []
        for wish in ("never", "always", "split"):
            with (
                theano.change_flags(**{"optdb.persistent_launches": wish}),
                optdb.SimulatorOCL(function, device) as sim,
            ):
                results = [np.concatenate([np.ravel(part) for part in sim(one)]) for one in data]
                got.append(np.concatenate([*results, np.ravel(sim.get(w))]))
                plan = last_plan(sim)
                assert plan is not None  # the calls above have made a plan
                enqueued = plan.commands, plan.enqueued
        differences = [difference(got[0], other) for other in got[1:]]
        right = max(differences) < 1e-3
        say(
            f"random {number}: always and split differ by",
            *(f"{d:.1e}" for d in differences),
            enqueued,
            "RIGHT" if right else "WRONG",
        )


if __name__ == "__main__":
    main()
