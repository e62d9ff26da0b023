"""The algebra of index expressions against plain integers."""

from __future__ import annotations

import random

import pytest

from rushlight._codegen.nest import merge
from rushlight._schedule.groups import mixed_radix, refine
from rushlight._schedule.indexing import Div, Mod, Var, const, delinearize, linearize
from rushlight._schedule.inline import reindex
from rushlight._types.shape_env import ShapeEnv


def value(ix, env):
    total = ix.const
    for atom, c in ix.terms:
        if type(atom) is Var:
            inner = env[atom]
        elif type(atom) is Div:
            inner = value(atom.ix, env) // atom.by
        else:
            assert type(atom) is Mod
            inner = value(atom.ix, env) % atom.by
        total += c * inner
    return total


def expression(choose, variables, depth):
    if depth == 0:
        return choose.choice(variables).ix * choose.choice((1, 1, 2, 3, 4, -1)) + choose.randint(0, 5)
    ix = expression(choose, variables, depth - 1)
    kind = choose.random()
    if kind < 0.4:
        return ix + expression(choose, variables, depth - 1)
    if ix.lo < 0:
        ix = ix + (-ix.lo)
    by = choose.choice((2, 3, 4, 6, 8, 12))
    return ix.floordiv(by) if kind < 0.7 else ix.mod(by)


@pytest.mark.parametrize("seed", range(20))
def test_division_and_remainder(seed):
    choose = random.Random(seed)
    for _ in range(200):
        variables = [Var(choose.choice((1, 2, 3, 4, 6, 8))) for _ in range(3)]
        ix = expression(choose, variables, 2)
        if ix.lo < 0:
            ix = ix + (-ix.lo)
        by = choose.choice((2, 3, 4, 6))
        quotient, rest = ix.floordiv(by), ix.mod(by)
        for _ in range(5):
            env = {v: choose.randrange(v.size) for v in variables}
            x = value(ix, env)
            assert value(quotient, env) == x // by and value(rest, env) == x % by
            assert ix.lo <= x <= ix.hi and quotient.lo <= x // by <= quotient.hi and rest.lo <= x % by <= rest.hi


def test_what_comes_apart_comes_together():
    row = Var(2 * 3 * 4)
    shape = (2, 3, 4)
    assert linearize(delinearize(row.ix, shape), shape) == row.ix
    i, j = Var(5), Var(7)
    assert (i.ix * 7 + j.ix).floordiv(7) == i.ix
    assert (i.ix * 7 + j.ix).mod(7) == j.ix
    assert const(0).floordiv(3) == const(0)


# a slice of a dim that is part of a merged one: a constant stands under the division
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_comes_apart_beside_a_constant_comes_together(symbolic):
    count, length = ShapeEnv([6, 384]).symbols if symbolic else (6, 384)
    row, step, lane = Var(count), Var(length), Var(64)
    whole = row.ix * (length * 64) + step.ix * 64 + lane.ix + 192
    shape = (count * 64, length)
    assert linearize(delinearize(whole, shape), shape) == whole


@pytest.mark.parametrize(
    ("shape", "target"),
    [((6, 4), (24,)), ((24,), (2, 3, 4)), ((2, 1, 12), (24, 1)), ((4, 6), (8, 3)), ((1,), ()), ((), (1, 1))],
)
def test_reindex(shape, target):
    dims = [Var(s) for s in shape]
    new = reindex([d.ix for d in dims], shape, target)
    for place in range(24 if 24 in (shape + target + (0,)) or shape in ((6, 4), (4, 6)) else 1):
        env, rest = {}, place
        for d in reversed(dims):
            env[d] = rest % d.size
            rest //= d.size
        found = 0
        for ix, size in zip(new, target, strict=True):
            found = found * size + value(ix, env)
        assert found == place


def test_loops_are_split_until_divisions_vanish():
    v = Var(24)
    mapping, loops = refine([v.ix.floordiv(4) * 10 + v.ix.mod(4)], [v])
    assert [x.size for x in loops] == [6, 4]
    place = (v.ix.floordiv(4) * 10 + v.ix.mod(4)).rebuild(lambda a: mapping.get(a) if type(a) is Var else None)
    assert place.coefficient(loops[0]) == 10 and place.coefficient(loops[1]) == 1


def test_even_loops_merge():
    i, j, k = Var(3), Var(4), Var(5)
    mapping = {}
    loops = merge([i, j, k], [i.ix * 20 + j.ix * 5 + k.ix, i.ix * 4 + j.ix], mapping)
    assert [v.size for v in loops] == [12, 5]
    assert mixed_radix(i.ix * 4 + j.ix, 12) == {i: 4, j: 1}
    assert mixed_radix(i.ix * 5 + j.ix, 15) is None
