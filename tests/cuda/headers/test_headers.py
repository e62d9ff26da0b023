"""What we pass to NVIDIA's libraries beside what their headers say (`table.json`, which `tools/cuda_headers.py` writes)."""

from __future__ import annotations

import ast
import ctypes
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cuda.headers.asked import LIBRARIES, Asked, parameter

from rushlight._backends.cuda.driver.choice import LEAST_VERSION
from rushlight._backends.cuda.driver.library import _FUNCTIONS, _LETTERS
from rushlight._backends.cuda.native import parameters_native

TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "table.json").read_text())
EVERY = [
    (version, name) for version, found in TABLE.items() for name in LIBRARIES if "functions" in found.get(name, {})
]
HEADERS = [version for version, found in TABLE.items() if "chosen" in found.get("driver", {})]
# Symbols that newer headers replace: the older ones stay in the driver with the arguments that are passed here.
OLDER = {
    "cuStreamGetCaptureInfo_v2": {"cuStreamGetCaptureInfo_v3"},
    "cuGraphAddKernelNode": {"cuGraphAddKernelNode_v2"},
    "cuGraphExecKernelNodeSetParams": {"cuGraphExecKernelNodeSetParams_v2"},
    "cuEventElapsedTime": {"cuEventElapsedTime_v2"},
    "cuDeviceGetUuid_v2": {"cuDeviceGetUuid"},  # of CUDA 12, beside the second: that of a whole GPU, not of its part
}


def same(ours: str, theirs: str) -> bool:
    """An enumeration is an integer of its width."""
    return ours == theirs or (theirs[0] == "e" and ours[0] in "iu" and ours[1:] == theirs[1:])


@pytest.fixture(params=EVERY, ids="-".join)
def pair(request: Any) -> Iterator[tuple[Asked, dict[str, Any]]]:
    version, name = request.param
    yield LIBRARIES[name], TABLE[version][name]


def test_functions_have_our_parameters(pair: tuple[Asked, dict[str, Any]]) -> None:
    """How many, how wide, in which order."""
    asked, said = pair
    wrong = {}
    for name, kinds in asked.functions.items():
        ours, theirs = [parameter(k) for k in kinds], said["functions"].get(name)
        if theirs is None or len(ours) != len(theirs.split()) or not all(map(same, ours, theirs.split())):
            wrong[name] = (" ".join(ours), theirs)
    assert not wrong


def test_numbers_are_those_of_the_headers(pair: tuple[Asked, dict[str, Any]]) -> None:
    asked, said = pair
    assert {name: said["constants"].get(name) for name in asked.constants} == asked.constants


def test_fields_lie_where_the_headers_put_them(pair: tuple[Asked, dict[str, Any]]) -> None:
    """A record that CUPTI writes may be longer than what is read of it; any other structure has the header's size."""
    asked, said = pair
    for name, structure in asked.structures.items():
        found = said["structures"][name]
        size = ctypes.sizeof(structure.ours)
        if hasattr(structure.ours, "_pack_") or name == "ncclConfig_t":
            assert size <= found["size"], name
        else:
            assert size == found["size"], name
        ours = {theirs: getattr(structure.ours, mine).offset for mine, theirs in structure.fields.items()}
        assert ours == found["fields"], name


@pytest.mark.parametrize("version", HEADERS)
def test_symbols_of_the_driver_are_those_that_the_header_chooses(version: str) -> None:
    asked, said = LIBRARIES["driver"], TABLE[version]["driver"]["chosen"]
    others = {s: said[s] for s in asked.names if said[s] != s and said[s] not in OLDER.get(s, ())}
    assert not others


@pytest.mark.parametrize("version", HEADERS)
def test_the_oldest_driver_that_is_taken_has_every_symbol(version: str) -> None:
    since = TABLE[version]["driver"]["since"]
    assert set(LIBRARIES["driver"].functions) == set(since)
    assert {name: v for name, v in since.items() if v > LEAST_VERSION} == {}


@pytest.mark.parametrize("version", TABLE)
def test_libraries_export_what_is_called(version: str) -> None:
    for name, asked in LIBRARIES.items():
        exports = TABLE[version].get(name, {}).get("exports")
        assert exports is None or set(exports) == set(asked.functions), name


# ***** calls of native code, which knows no types of ctypes *****

NATIVE = Path(parameters_native.__file__).parent
_WIDTHS = {"ptr": "p8", "i64": "u8", "u64": "u8", "i32": "i4", "u32": "u4", "u8": "u1"}


def calls_of_driver() -> Iterator[tuple[str, str]]:
    """(the word of the table that has a function of the driver, the signature by which it is called)."""
    for file in NATIVE.glob("*_native.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "call_ptr":
                signature, function = node.args[0], ast.unparse(node.args[1])
                if isinstance(signature, ast.Constant) and function.startswith("STATE.ptr[AT."):
                    yield function.removeprefix("STATE.ptr[AT.").rstrip("]"), signature.value


def test_native_code_passes_what_the_driver_takes() -> None:
    names = dict(
        re.findall(r'words\[AT\.(\w+)\] = driver\.function_address\("(\w+)"\)', (NATIVE / "plans.py").read_text())
    )
    seen = set()
    for word, signature in calls_of_driver():
        if word not in names:
            continue
        seen.add(word)
        symbol, letters = _FUNCTIONS[names[word]]
        ours = [parameter(_LETTERS[x]) for x in letters]
        given = [_WIDTHS[x] for x in re.findall(r"\w+", signature.partition("(")[2])]
        as_numbers = lambda kinds: [k.replace("p8", "u8") for k in kinds]
        assert signature.startswith("i32(") and as_numbers(given) == as_numbers(ours), symbol
    assert seen == set(names)
