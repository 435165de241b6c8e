"""Names: those that were replaced by the field's words do not come back, and no two classes share one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: The former name of something, and what it is called now.
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
    "_Instead": "_override_compute",
    "FIGURES": "HOST_SCALAR_OPS",
}

#: The same for classes whose former names are words of sentences as well.
RENAMED_CLASSES = {
    "Builder": "ModuleBuilder, LiftBuilder, FusedNodeBuilder",
    "Entry": "SharedOpRef, InputSpec, CachedFile",
    "Groups": "FilterGroups, FusionGroups",
    "Later": "DeferredArray",
    "Layout": "ArrayLayout, ChannelLayout",
    "Numbers": "OpNumbering, IndexArray",
    "Place": "OrderPosition, MemorySpec",
    "Places": "IndexLayout",
    "Rules": "ShapeEnv, GuardSet",
    "Size": "SymInt",
    "Sizes": "SymIntVector",
    "Unit": "TranslationUnit, FusionUnit",
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


def classes(source):
    """Yield the name and the line of each class, those inside of others and of functions among them."""
    return ((node.name, node.lineno) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


@pytest.fixture(scope="module")
def places_of_classes():
    """Where each class of the package stands, by name."""
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
