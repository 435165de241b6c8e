"""Shows where one optimization of a model spends its time: ``python -m profiles.profile MODEL``.

The optimizer runs once under cProfile, which slows calls down unevenly: use this to find hot spots, and ``compare`` to
measure. Seconds are CPU seconds.
"""

from __future__ import annotations

import cProfile
import pstats
import time

import click

from profiles import cli, measure


@click.command()
@click.argument("model", type=cli.MODEL)
@cli.way_option
@click.option("--top", default=30, show_default=True, help="Number of functions to print.")
@click.option("--save", type=click.Path(dir_okay=False), help="Write the profile to this file, for pstats or a viewer.")
@click.option("--callers", help="Also print the callers of functions whose names match this expression.")
def main(model: cli.Builder, way: str, top: int, save: str | None, callers: str | None) -> None:
    """Profile one optimization of MODEL."""
    specification = measure.specify(model())
    # CPU seconds exclude waits for compilers.
    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    measurement = measure.optimize(specification, cli.way(way))
    profiler.disable()

    nodes = f"{measurement.before} -> {measurement.after} nodes"
    click.echo(f"{specification.model.name} ({way}): {nodes}, {measurement.seconds:.2f} s")
    for phase, seconds in measurement.phases.items():
        click.echo(f"  {phase:18} {seconds:7.2f} s")
    statistics = pstats.Stats(profiler)
    statistics.sort_stats("tottime").print_stats(top)
    statistics.sort_stats("cumulative").print_stats(top)
    if callers:
        statistics.print_callers(callers)
    if save:
        statistics.dump_stats(save)
        click.echo(f"saved {save}")


if __name__ == "__main__":
    main()
