"""Compares optimization by stock Theano and by optdb: ``python -m profiles.compare [MODELS]``.

Both optimizers take turns in one process, on fresh clones of one graph. Finally, the last graph of each optimizer is
run on the model's data. The exit status is 1 if values disagree, or if optdb's graph has more nodes or fewer in-place
ops than that of stock Theano.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from profiles import check, cli, files, first, measure, models, report, screen, terminal, ways, whole
from profiles.report import STOCK
from profiles.starts import Start


def compare(
    model: models.Model,
    baseline: str = "fast_run",
    repeat: int = 1,
    values: bool = True,
    tell: Callable[[str], None] = lambda step: None,
) -> report.Comparison:
    """Optimize a model with both optimizers in turn; call `tell` with the name of each finished step."""
    specification = measure.specify(model)
    stock, ours = ways.stock(baseline), ways.topological()
    runs = measure.alternate(specification, [stock, ours], repeat, tell)
    if not values:
        return report.Comparison(model.name, runs, None)

    results = []
    for way in (stock, ours):
        results.append(check.evaluate(specification, runs[way.name][-1], way))
        tell("values")
    expected, found = results
    agreement = check.compare(expected, found)
    if not agreement.agree:
        agreement = check.compare(expected, found, check.of_nudged_inputs(specification, stock))
    return report.Comparison(model.name, runs, agreement)


def compare_all(
    builders: list[Callable[[], models.Model]], baseline: str, repeat: int, values: bool
) -> list[report.Comparison]:
    """Compare models one after the other, with a progress bar on standard error."""
    comparisons = []
    with terminal.progress() as progress:
        steps = 1 + 2 * repeat + 2 * values
        task = progress.add_task("warming up", total=len(builders) * steps)
        compare(models.build(measure.WARM_UP), baseline, values=False)
        for builder in builders:
            model = builder()
            progress.update(task, advance=1, description=model.name)

            def tell(step: str, name: str = model.name) -> None:
                progress.update(task, advance=1, description=f"{name}: {step} done")

            comparisons.append(compare(model, baseline, repeat, values, tell))
    return comparisons


def compare_wholes(names: list[str], json_file: Path | None, plot: Path | None) -> None:
    """Compare the time of theano.function as a whole, and print or write the measurements."""
    starts: list[Start] = []
    with terminal.progress() as progress:
        task = progress.add_task("starting", total=4 * len(names))
        for name in names:

            def tell(step: str, name: str = name) -> None:
                progress.update(task, advance=1, description=f"{name}: {step} done")

            starts += whole.measure(name, tell=tell)
    terminal.console().print(whole.render(starts))
    terminal.write_json(whole.numbers(starts), json_file)
    if plot:
        whole.write_plot(starts, plot)
    terminal.print_paths(numbers=json_file, plot=plot)


def compare_first_results(names: list[str], json_file: Path | None, is_trained: bool, sides: Sequence[str]) -> None:
    """Compare the time until the first result of a function, and print or write the measurements."""
    names, missing = first.available(names)
    measured: list[first.First] = []
    with terminal.progress() as progress:
        task = progress.add_task("starting", total=len(sides) * len(names))
        for name in names:

            def tell(step: str, name: str = name) -> None:
                progress.update(task, advance=1, description=f"{name}: {step} done")

            sizes = first.TRAINED_SIZES.get(name, {}) if is_trained else {}
            measured += first.measure(name, tell=tell, sizes=sizes, sides=sides)
            terminal.write_json(measured, json_file)  # written after each model, because a long run may be stopped
    console = terminal.console()
    if measured:
        console.print(first.render(measured))
    if missing:
        console.print(f"skipped: {', '.join(missing)}, whose libraries are not installed; `make models` installs them")
    terminal.print_paths(numbers=json_file)


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=cli.MODEL)
@click.option("--baseline", type=click.Choice(ways.BASELINES), default="fast_run", show_default=True)
@terminal.count_option("--repeat", 2, "Number of runs of each way.")
@terminal.json_option
@click.option("--plot", type=cli.PICTURE, help="Draw the phases into this file.")
@click.option("--values/--no-values", default=True, show_default=True, help="Run both graphs and compare their values.")
@click.option("--whole", "as_whole", is_flag=True, help="Compare theano.function with compilers, cold and warm.")
@click.option("--first", "first_results", is_flag=True, help="With --whole: compare how soon first results come.")
@click.option("--trained", is_flag=True, help="With --first: use realistic training sizes, for models that have them.")
@click.option("--stock/--no-stock", default=True, help="With --first: also start stock, which takes longest.")
def main(
    chosen: tuple,
    baseline: str,
    repeat: int,
    json_file: Path | None,
    plot: Path | None,
    values: bool,
    as_whole: bool,
    first_results: bool,
    trained: bool,
    stock: bool,
) -> None:
    """Compare the optimization of MODELS (by default, all models) by stock Theano and by optdb."""
    if first_results:
        if not as_whole or plot:
            raise click.UsageError("--first needs --whole and excludes --plot")
        default = first.TRAINED_SIZES if trained else first.MODELS
        sides = [side for side in first.FLAGS if stock or side != STOCK]
        compare_first_results([builder.name for builder in chosen] or list(default), json_file, trained, sides)
        return
    if as_whole:
        compare_wholes([builder.name for builder in chosen] or models.known(), json_file, plot)
        return
    builders = list(chosen) or [cli.MODEL.convert(name, None, None) for name in models.known()]
    comparisons = compare_all(builders, baseline, repeat, values)

    terminal.console().print(screen.render(comparisons, baseline))
    terminal.write_json(files.numbers(comparisons, baseline), json_file)
    if plot:
        files.write_plot(comparisons, baseline, plot)
    terminal.print_paths(numbers=json_file, plot=plot)
    sys.exit(1 if any(comparison.faults() for comparison in comparisons) else 0)


if __name__ == "__main__":
    main()
