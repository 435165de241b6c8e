"""Names that terms of the field have replaced do not come back, and no two classes have the same name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: The former name of something, and its current name.
RENAMED = {
    "Room": "BufferAssignment",
    "_furnish": "_allocate",
    "_nowhere": "_placeholder",
    "arrived": "sync_to_host",
    "Loans": "ZeroCopyScope",
    "Wiring": "LinkedFunction",
    "Watched": "GuardedStep",
    "Stretch": "CommandSegment",
    "Watchful": "RecorderProtocol",
    "OF_A_LAUNCH": "LAUNCH_OVERHEAD_S",
    "FRUITLESS": "MAX_UNUSED_RECORDINGS",
    "blindly": "unconditional_commands",
    "let_go": "drop_external",
    "refill": "restore_cells",
    "Advance": "CommitUpdates",
    "in_the_way": "aliased_outputs",
    "let_move": "mark_rebindable",
    "movable": "rebindable_inputs",
    "landing": "external_outputs",
    "copies_kernels": "compiles_body_repeatedly",
    "one_lift": "dedup_transfers",
    "settle_islands": "rebalance_partitions",
    "bring_in": "import_host",
    "go_around": "wrap_compilation",
    "offer_optimize": "install_optimize_method",
    "Counted": "RefCountedSetting",
    "Freely": "ValueGuards",
    "Said": "Manifest",
    "SaidMethod": "Function",
    "SaidState": "SharedValue",
    "Stock": "Resources",
    "Outlet": "OutputSpec",
    "AT_HOME": "FIRST_HOST_INPUT",
    "scalar_trouble": "scalar_unsupported_reason",
    "why_not_added": "adding_unsupported_reason",
    "why_not_folded": "folding_unsupported_reason",
    "_HOME": "_LAZY_ATTRS",
    "_ROOMS": "_LAZY_SUBMODULES",
    "Coming": "Future",
    "CoherentFunction": "Executable",
    "_Instead": "computed_by",
    "FIGURES": "HOST_SCALAR_OPS",
    "_Known": "_PlanCacheEntry",
    "_path_behind": "_cached_path_after",
    "_part_again": "_copy_aliased_updates",
    "_told_of_change": "_change_listeners",
    "_there_already": "_without_transfer",
    "add_places": "add_offsets",
    "at_home": "on_host",
    "behind_a_reduction": "with_epilogue",
    "bring_home": "as_host_variable",
    "brought_home": "downloaded",
    "device_places": "device_slots",
    "inputs_by_place": "inputs",
    "keep_apart": "add_difference",
    "of_what_is_computed": "with_prologue",
    "place_in_code": "source_location",
    "place_of": "position_of, index_of",
    "row_places": "row_offsets",
    "see_to": "ensure_...",
}

#: Words of names, comments, docstrings and messages that had to be read twice, and what to write instead.
UNWANTED = {
    r"said|told": "the name of the thing: spec, message, report",
    r"place(?= (?:of|in|for|from)\b| = )": "index, slot, position or range",
    r"whoever": "the subject",
    r"as ever": "nothing",
    r"(?:at|comes?|brought|brings?) home": "on the host, or downloaded",
    r"stands? in for": "replaces",
    r"(?:see|sees|saw) to it": "ensure",
    r"in its place": "instead, or replaces it",
}

#: Like `RENAMED`, for classes whose former names are also ordinary words.
RENAMED_CLASSES = {
    "Builder": "ModuleBuilder, LiftBuilder, FusedNodeBuilder",
    "Entry": "SharedOpRef, InputSpec, CachedFile",
    "ExactReplica": "SynchronousReplica",
    "FusionUnit": "FusionGroup",
    "Groups": "FilterGroups, FusionGroups",
    "HostStep": "HostComputation",
    "IterationUnit": "ScheduledIteration",
    "LaneStep": "VectorEmitter",
    "Later": "DeferredArray",
    "Layout": "ArrayLayout, ChannelLayout",
    "LoopStep": "FusedKernel",
    "LoopUnit": "FusibleLoop",
    "LoosePlan": "LocalTraining",
    "LooseReplica": "LocalReplica",
    "MadeStep": "CompletedStep",
    "NodeStep": "NodeThunk",
    "Numbers": "OpNumbering, IndexArray",
    "OperationUnit": "ScheduledOperation",
    "Place": "OrderPosition, MemorySpec",
    "PlacementPlan": "Placement",
    "Places": "IndexLayout",
    "Program": "ScalarProgram",
    "Rules": "ShapeEnv, GuardSet",
    "ScalarStep": "ScalarEmitter",
    "Size": "SymInt",
    "Sizes": "SymIntVector",
    "Step": "PlanStep",
    "StepPlan": "SynchronousTraining",
    "Steps": "NodeEvaluator",
    "Unit": "TranslationUnit, FusionGroup",
    "WorkUnit": "ScheduleNode",
}


def test_former_names_do_not_come_back():
    pattern = re.compile(rf"\b({'|'.join(RENAMED)})\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: write {RENAMED[match[0]]} instead of {match[0]}"
        for path in sorted((ROOT / "optdb").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for match in pattern.finditer(line)
    ]
    assert not found, "\n".join(found)


def unwanted_words(text):
    """For each unwanted word, yield the line, the word, and what to write instead."""
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, instead in UNWANTED.items():
            for match in re.finditer(rf"\b(?<!in )(?<!in-)(?:{pattern})\b", line):
                yield number, match[0], instead


def test_the_package_has_no_unwanted_words():
    found = [
        f"{path.relative_to(ROOT)}:{number}: write {instead} instead of {word!r}"
        for path in sorted((ROOT / "optdb").rglob("*.py"))
        for number, word, instead in unwanted_words(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_unwanted_words_are_found():
    text = "it works in place of x\nit was told\n# put in its place\n# sees to it that\nplace = 0"
    assert [(number, word) for number, word, _ in unwanted_words(text)] == [
        (2, "told"),
        (3, "in its place"),
        (4, "sees to it"),
        (5, "place"),
    ]


def classes(source):
    """Yield the name and the line of each class, including nested classes."""
    return ((node.name, node.lineno) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


@pytest.fixture(scope="module")
def places_of_classes():
    """The locations of each class of the package, by name."""
    found = defaultdict(list)
    for path in sorted((ROOT / "optdb").rglob("*.py")):
        for name, line in classes(path.read_text()):
            found[name].append(f"{path.relative_to(ROOT)}:{line}")
    assert len(found) > 400
    return found


@pytest.mark.slow
def test_no_two_classes_have_the_same_name(places_of_classes):
    assert not {name: places for name, places in places_of_classes.items() if len(places) > 1}


def test_former_names_of_classes_do_not_come_back(places_of_classes):
    assert not {
        name: (new, places_of_classes[name]) for name, new in RENAMED_CLASSES.items() if name in places_of_classes
    }


def test_classes_are_found():
    source = "class A:\n    class B: ...\ndef f():\n    class _C(A): ...\n"
    assert sorted(classes(source)) == [("A", 1), ("B", 2), ("_C", 4)]
