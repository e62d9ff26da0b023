"""Scatters through sorted places: every sample of the primitives, and many equal indices; the sort is NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.grids import grid_harness
from tests.cuda.grids.grid_harness import check

from rushlight._backends.cuda.externs import EXTERNS, Routine
from rushlight._backends.cuda.program.steps import Call
from rushlight._codegen.grid import lowering
from rushlight._prims import PRIMITIVES, prim
from rushlight._schedule.library import CallForm
from rushlight._types.dtype import BY_NAME

RNG = np.random.default_rng(0)


class Ran(grid_harness.Ran):
    """Runs the steps of a program one by one, and sorts in between."""

    def _run(self, words):
        steps = self.program.steps
        for step in steps:
            if isinstance(step, Call):
                self.sort(*[operand.memory for operand in step.arguments])
                continue
            self.program.steps = [step]
            super()._run(words)
        self.program.steps = steps

    def sort(self, keys, values, order):
        for memory in (values, order):
            self._put(memory, np.zeros(memory.nbytes, np.uint8))
        given = self.data[keys].view(np.int64)
        found = np.argsort(given, kind="stable")
        self.data[values].view(np.int64)[:], self.data[order].view(np.int64)[:] = given[found], found


@pytest.fixture(autouse=True)
def sorted_places(monkeypatch):
    monkeypatch.setitem(
        EXTERNS, "sort", Routine(lambda c: [Call("sort", None, [*c.inputs, *c.outputs])], lambda node: True, CallForm())
    )
    monkeypatch.setattr(lowering, "_SORTED", 1)
    monkeypatch.setattr(grid_harness, "Ran", Ran)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", ["scatter", "index_put"])
def test_samples(name):
    for arrays, params in PRIMITIVES[name].samples():
        arrays = [np.asarray(a) for a in arrays]
        dtypes = [BY_NAME[a.dtype.name] for a in arrays]
        check(lambda *xs, params=params: PRIMITIVES[name](*xs, **params), *arrays, dtypes=dtypes)


def test_rows_are_added_in_the_order_of_their_indices():
    x, v, i = floats(10, 64), floats(500, 64), RNG.integers(-10, 10, 500)
    ran = check(lambda *xs: prim.index_put(*xs, accumulate=True), x, v, i)
    assert [step.name for step in ran.program.steps] == ["pointwise", "pointwise", "sort", "runs"]


@pytest.mark.parametrize("reduce", ["set", "add", "mul", "amax", "amin"])
@pytest.mark.parametrize("shape", [(100,), (40, 6)])
def test_scatter_along_a_dim(shape, reduce):
    x, source, at = floats(10, *shape[1:]), floats(*shape), RNG.integers(0, 10, shape)
    check(lambda *xs: prim.scatter(*xs, dim=0, reduce=reduce), x, at, source)
