"""Records are parsed and written field by field, and the reference describes the format that they define."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from optdb.runtime import deferred, expressions
from optdb.runtime.commands import EnqueueCopy, EnqueueFill, EnqueueKernel, EnqueueUpload
from optdb.runtime.exported import manifest
from optdb.runtime.exported.archive import Archive, Limits, pack
from optdb.runtime.exported.manifest import Manifest, SavedTrace, read
from optdb.runtime.records import Record, Where
from tests.runtime.planned import LARGER, LAUNCH, MEMBERS, arithmetic, number

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "exported-files.md"
COMMANDS = (EnqueueKernel, EnqueueCopy, EnqueueFill, EnqueueUpload)


class Names:
    """A fake writer that returns the names of members in the handwritten example."""

    def array(self, value):
        return "arrays/0.npy"

    def text(self, value):
        return "programs/0.cl"


@pytest.fixture
def archive(tmp_path):
    pack(tmp_path / "f.optdb", LARGER, MEMBERS)
    return Archive(tmp_path / "f.optdb", Limits())


def test_what_is_parsed_is_written_again(archive):
    assert read(archive).to_json(Names()) == LARGER


def test_commands_are_those_of_a_list(archive):
    (method,) = read(archive).methods
    commands = method.traces[0].commands
    assert [type(command) for command in commands[:2]] == [EnqueueUpload, EnqueueKernel]
    assert {type(command) for command in commands} == set(COMMANDS)
    assert [slot for slot, memory in commands[1].operands() if memory == 1] == [3]
    assert commands.needing_own_buffer() == {2}


def kinds(module):
    """Return the values of `kind` of the record classes in a module."""
    records = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Record))
    return {record.kind for record in records if record.kind is not None}


def test_the_reference_names_all_fields_and_kinds():
    text = REFERENCE.read_text()
    words = set(re.findall(r"`([a-z_]+)`", text))
    fields = {field.name for record in (Manifest, SavedTrace) for field in dataclasses.fields(record)}
    modules = (expressions, deferred, manifest)
    wanted = fields.union(*map(kinds, modules), (command.kind for command in COMMANDS))
    assert len(wanted) > 25
    assert wanted - words == set()


def test_examples_of_the_reference_are_records(archive):
    entry, launch = map(json.loads, re.findall(r"```json\n(.*?)```", REFERENCE.read_text(), re.DOTALL))
    trace = Where(archive, [{"entries": [expressions.ComputeUnits()]}])
    assert expressions.Arithmetic.parse(entry, trace).right == 4
    assert launch.keys() == LAUNCH.keys()


def test_a_fault_is_told_with_its_position(archive):
    archive.manifest["methods"][0]["traces"][1]["commands"][7]["target_offset"] = "$9"
    with pytest.raises(ValueError, match=re.escape("manifest.methods[0].traces[1].commands[7].target_offset must be")):
        read(archive)


def test_the_position_of_a_number_in_an_argument(archive):
    launch = archive.manifest["methods"][0]["traces"][0]["commands"][1]
    launch["args"][0]["values"][0] = "$999"
    with pytest.raises(ValueError, match=re.escape("traces[0].commands[1].args[0].values[0] must be a number, or a")):
        read(archive)


def test_equal_arguments_are_parsed_once_and_others_are_not_mistaken_for_them(archive):
    numbers = [0, 0.0, -0.0, False, 1, 1.0, True, "inf", 0]
    where = Where(archive)
    records = [expressions.kernel_argument(number(value, dtype="float64"), where) for value in numbers]
    assert [repr(record.values[0]) for record in records] == [
        *("0", "0.0", "-0.0", "False", "1", "1.0", "True", "inf", "0"),
    ]
    assert records[0] is records[-1]


def test_an_argument_is_parsed_again_for_the_sizes_of_another_trace(archive):
    first, second = archive.manifest["methods"][0]["traces"][:2]
    first["entries"].append(arithmetic("*", "$0", 2))
    of_first_alone = f"${len(first['entries']) - 1}"
    first["commands"][1]["args"][0] = second["commands"][1]["args"][0] = number(of_first_alone)
    with pytest.raises(ValueError, match=re.escape("manifest.methods[0].traces[1].commands[1].args[0].values[0]")):
        read(archive)
