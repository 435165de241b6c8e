"""Text for terminals."""

from __future__ import annotations

from rich.console import Console

from optdb.cli.terminal import print_text, verbatim


def _printed(capsys, text, **options):
    print_text(Console(width=30), text, **options)
    return capsys.readouterr().out.splitlines()


def test_prose_is_wrapped_between_words(capsys):
    lines = _printed(capsys, "one two three-four five six seven eight", head="name  ", indent=6)
    assert lines == ["name  one two three-four five", "      six seven eight"]


def test_code_is_not_broken(capsys):
    assert _printed(capsys, "run a script by `python -m optdb run`, or so") == [
        "run a script by",
        "`python -m optdb run`, or so",
    ]


def test_a_long_word_is_not_broken(capsys):
    assert _printed(capsys, f"the word {'x' * 40} is long") == ["the word", "x" * 40, "is long"]


def test_commands_and_paths_are_lines_of_their_own(capsys):
    path = "/folder/" + "x" * 40
    command = "pip install 'optdb[opencl]' [not-markup] --option"
    lines = _printed(capsys, f"kept in\n{verbatim(path)}\nor by\n{verbatim(command)}", head="name  ", indent=6)
    assert lines == ["name  kept in", f"    {path}", "      or by", f"    {command}"]


def test_a_head_before_a_path_has_a_line(capsys):
    assert _printed(capsys, verbatim("/folder"), head="name  ") == ["name", "    /folder"]
