"""Tables of native plans: what is packed is what is declared, each kind reads its own, and devices are reached through them alone."""

from __future__ import annotations

import ast
import ctypes
import inspect
from typing import Any

import pytest

import rushlight as torch
from rushlight._backends.cpu.runtime import pool_native
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.stubs import bind, native_address
from rushlight._engine.dispatch.plans import native_plans
from rushlight._host.device_records import DEVICE
from rushlight._host.plans import plan_native, plan_records
from rushlight._host.plans.plan_records import CHECKED, KINDS, PROGRAM, SEQUENCE, SHOW, list_place, packed, tag_of
from rushlight._host.python_native import PyLong_FromLongLong
from rushlight._native import Record, Static, call_ptr, i64, listed, native, ptr, pyobject, static
from rushlight._types.spec import Spec


def plan_of(record: str, values: dict[str, Any]) -> Any:
    native_plans.ready()
    return native_plans._plan(record, len, values)


# ***** packing *****

PAIR = Record("pair", ("size", i64, "in bytes"), ("owner", pyobject, "an object"))
SHELF = Record(
    "shelf",
    ("count", i64, "pairs"),
    ("pairs", listed(PAIR), "they"),
    ("spare", PAIR, "one more"),
    ("at", ptr, "an address"),
)


def test_tables_are_packed_as_they_are_declared() -> None:
    first, second, spare = object(), object(), object()
    words, keep = packed(
        SHELF, {"count": 2, "pairs": [(3, first), (5, second)], "spare": {"size": 7, "owner": spare}, "at": 64}
    )
    start = list_place(words, SHELF.pairs.place)
    assert list(words) == [2, start - 1, 7, id(spare), 64, 3, id(first), 5, id(second)] and start == len(SHELF)
    assert keep == [first, second, spare]  # whatever a table points to is kept


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"count": 1.5}, "shelf.count is i64, not 1.5"),
        ({"at": -1}, "shelf.at is ptr, not -1"),
        ({"count": True}, "shelf.count is i64, not True"),
        ({"count": 1 << 63}, "shelf.count is i64"),
        ({"pairs": [("x", None)]}, "pair.size is i64, not 'x'"),
        ({"colour": 1}, r"no such field as \['colour'\]"),
    ],
)
def test_what_is_not_declared_is_refused(change: dict[str, Any], match: str) -> None:
    values = {"count": 1, "pairs": [], "spare": {"size": 0, "owner": None}, "at": 0}
    with pytest.raises(TypeError, match=match):
        packed(SHELF, {**values, **change})


def test_a_field_without_a_value_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pair: no value for \['owner'\]"):
        packed(PAIR, {"size": 1})


def test_tags_tell_kinds_apart() -> None:
    assert len({tag_of(record) for record in KINDS}) == len(KINDS)
    assert packed(SHOW, {"n_shown": 0, "shown": []})[0][0] == tag_of(SHOW)
    assert all(next(iter(record)).name == "tag" for record in KINDS)


# ***** reading *****


def test_each_kind_of_plan_reads_its_own_table() -> None:
    """Every field that a plan's function takes from `table` is of the record of that kind."""
    functions = {name: value for name, value in vars(plan_native).items() if name.endswith("_plan")}
    for record in KINDS:
        kind = next(name for name, value in vars(plan_records).items() if value is record)
        function = functions[f"{kind.lower()}_plan"]
        tree = ast.parse(inspect.getsource(function.python))
        read = {
            node.slice.value.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id == "table"
            and isinstance(node.slice, ast.Attribute)
            and isinstance(node.slice.value, ast.Name)
        }
        tags = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id.endswith("_TAG")}
        assert read <= {kind} and tags == {f"{kind}_TAG"}, (kind, read, tags)


@pytest.mark.skipif(not CHECKED, reason="needs RUSHLIGHT_CHECK_TABLES=1")
def test_a_table_of_another_kind_is_refused() -> None:
    plan = plan_of("CHOOSE", {"n_picks": 1, "picks": [0]})
    assert plan("a") == ("a",)
    plan.keep[-1][0] = tag_of(SEQUENCE)
    with pytest.raises(SystemError, match="a native plan reads tables tagged"):
        plan("a")


# ***** devices *****


@native("ptr(ptr)", name="read_address")
def read_address(at):
    return PyLong_FromLongLong(i64(at))


def test_items_are_read_by_the_reader_in_the_plan() -> None:
    x = torch.tensor(2.5)
    plan = plan_of("ITEM", {"reader": native_address(read_address)})
    assert plan(x) == x.data_ptr() != 2.5


COUNTS: Static = static("test_device_counts", 8 * 9)  # a record DEVICE, then how often memory was taken and given back


@native("ptr(i64)", name="counting_allocate")
def counting_allocate(nbytes):
    COUNTS.i64[7] += 1
    return call_ptr("ptr(i64)", COUNTS.ptr[6].ptr[0], nbytes)


@native("void(ptr, i64)", name="counting_release")
def counting_release(p, nbytes):
    COUNTS.i64[8] += 1
    call_ptr("void(ptr, i64)", COUNTS.ptr[6].ptr[2], p, nbytes)


@native("ptr(ptr)", name="counting_device")
def counting_device(cpu):
    """A device that counts, over another's functions; its table."""
    for k in range(6):
        COUNTS.ptr[k] = cpu.ptr[k]
    COUNTS.ptr[6] = cpu
    COUNTS[DEVICE.allocate] = counting_allocate
    COUNTS[DEVICE.release] = counting_release
    return COUNTS


def test_memory_comes_from_the_device_in_the_plan_and_goes_back_to_it() -> None:
    assert len(DEVICE) == 6
    make_device = bind(counting_device)  # held: the functions and the table lie in its unit
    table = make_device(runtime().device.functions)
    counts = (ctypes.c_int64 * 9).from_address(table)
    spec = Spec.of(torch.float32, torch.device("cpu"), (4,))
    fresh = plan_of("FRESH", {"device": table, "spec": spec, "nbytes": spec.nbytes, "zeroed": 0})
    x = fresh()
    assert x.shape == (4,) and list(counts[7:]) == [1, 0]
    x.fill_(1)
    y = x + 1  # from the CPU's own functions
    assert y.sum() == 8 and list(counts[7:]) == [1, 0]
    del x
    assert list(counts[7:]) == [1, 1]
    zeros = plan_of("FRESH", {"device": table, "spec": spec, "nbytes": spec.nbytes, "zeroed": 1})()
    assert zeros.tolist() == [0.0] * 4
    del zeros
    assert list(counts[7:]) == [1, 2]
    del make_device


def test_the_host_links_nothing_of_the_pool() -> None:
    """The functions of the two units are apart: the host's has none of the pool, the threads or the stub of kernels."""
    from rushlight._host import runtime as host

    reached, todo = set(), list(host._ROOTS)
    while todo:
        function = todo.pop()
        if function.symbol not in reached:
            reached.add(function.symbol)
            todo += function.own_parts()[1]
    assert {"kernel_plan", "storage_dealloc"} <= reached
    assert not reached & {
        pool_native.block_alloc.symbol,
        pool_native.block_free.symbol,
        "rl_parallel_for",
        "launch",
        "kernel_stub",
    }
    assert PROGRAM.device.type is ptr
