"""Linked programs: the bytes of calls one after another, fused, in one block of memory, by one native call."""

from __future__ import annotations

import random
import warnings

import pytest
from tests.kernels.call_programs import Calls, Stored, bytes_of

import rushlight
from rushlight._backends.cpu.program.arena import planned
from rushlight._backends.cpu.program.phases import divided
from rushlight._backends.registry import backend_of
from rushlight._graph.core import GraphBuilder
from rushlight._graph.printer import parse, to_source
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._transforms.partition import Joint, partition
from rushlight._types.device import CPU
from rushlight._types.dtype import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT64, DType


def clusters(executable):
    return len(executable.linked.clusters)


def linear(x, w, b):
    product = prim.dot(x, prim.transpose(w, perm=(1, 0)), dtype=x.dtype)
    return product + prim.broadcast(b, shape=product.shape, dims=(1,))


def total(*dims):
    return lambda x: prim.sum(x, dims=dims)


def softmax(x):
    """Rows of numbers that add up to one."""
    ndim = len(x.shape)

    def along(v):
        return prim.broadcast(v, shape=x.shape, dims=tuple(range(ndim - 1)))

    powers = prim.exp(x - along(prim.amax(x, dims=(ndim - 1,))))
    return prim.div(powers, along(prim.sum(powers, dims=(ndim - 1,))))


def normalized(x):
    """Rows of mean 0 and variance 1, with the means."""
    rows = tuple(range(len(x.shape) - 1))
    n = float(x.shape[-1])
    mean = prim.sum(x, dims=(len(rows),)) / n
    centred = x - prim.broadcast(mean, shape=x.shape, dims=rows)
    variance = prim.sum(centred * centred, dims=(len(rows),)) / n
    return centred * prim.broadcast(prim.rsqrt(variance + 1e-5), shape=x.shape, dims=rows), mean


# ***** what becomes one *****


def test_a_product_over_nothing_is_zeros():
    empty = rushlight.zeros(3, 0), rushlight.zeros(0, 3)
    product = rushlight.compile(lambda a, b: a @ b)
    with warnings.catch_warnings(action="error"):
        assert rushlight.equal(product(*empty), rushlight.zeros(3, 3))


def test_a_chain_of_calls_is_one_kernel():
    program = Calls()
    x = program.input((40, 50), FLOAT32)
    y = x
    for k in range(30):
        y = program.call(lambda a, n: a * build.broadcast_to(n, a.shape) + 0.5, y, numbers=[(0.5 + k, FLOAT32)])
        y = program.call(lambda a: prim.tanh(a), y)
    made = program.check([y])
    assert clusters(made) == len(made.launches) == 1


def test_narrow_floats_are_rounded_where_the_calls_round():
    program = Calls()
    x = program.input((64, 64), BFLOAT16)

    def step(a):
        wide = prim.convert(a, dtype=FLOAT32)
        return prim.convert(prim.sin(wide) * 1.3, dtype=BFLOAT16)

    y = program.call(step, program.call(step, program.call(step, x)))
    assert clusters(program.check([y])) == 1


def test_a_product_takes_what_follows():
    program = Calls()
    x, w, b = program.input((32, 64), FLOAT32), program.input((48, 64), FLOAT32), program.input((48,), FLOAT32)
    y = program.call(linear, x, w, b)
    z = program.call(lambda a: prim.maximum(a, build.full_like(a, 0.0)), y)
    assert clusters(program.check([z])) == 1


@pytest.mark.parametrize("sizes", [(24, 40, 33), (8, 600, 48), (300, 1200, 810)])
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16])
def test_a_product_of_narrow_floats_takes_what_reads_it_rounded(sizes, dtype):
    program, (m, k, n) = Calls(), sizes
    x, w, h = (program.input(shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    y = program.call(lambda a, b: prim.dot(a, b, dtype=a.dtype), x, w)

    def step(a, b):
        return prim.convert(prim.convert(a, dtype=FLOAT32) * prim.tanh(prim.convert(b, dtype=FLOAT32)), dtype=dtype)

    z = program.call(step, y, h)
    assert clusters(program.check([z])) == 1 and clusters(program.check([y, z])) == 1


@pytest.mark.parametrize("shape", [(64, 100), (7, 2000), (3, 5, 64)])
def test_reductions_take_what_is_before_and_behind(shape):
    program = Calls()
    x = program.input(shape, FLOAT32)
    y = program.call(softmax, program.call(lambda a: a * 3.0, x))
    z, mean = program.call(normalized, program.call(lambda a: prim.exp(a), y))
    made = program.check([z, mean])
    assert clusters(made) < 4, made.explain()


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(300, 500), (5, 30000), (30000, 5), (70, 3)])
@pytest.mark.parametrize("turned", [False, True])
def test_sums_keep_their_order(shape, dims, turned):
    program = Calls()
    x, y = program.input(shape, FLOAT32), program.input(shape[::-1], FLOAT32)
    y = program.view(y, "transpose", perm=(1, 0))
    a, b = (y, x) if turned else (x, y)
    c = program.call(lambda p, q: p * q + 0.25, a, b)
    d = program.call(total(*dims), c)
    e = program.call(lambda v: v * 0.5, d)
    program.check([e])
    program.check([c, e])


# ***** views *****


def test_views_between_calls():
    program = Calls()
    x = program.input((4, 6, 30), FLOAT32)
    y = program.call(lambda a: prim.exp(a), x)
    parts = [
        program.view(
            program.view(y, "slice", starts=(0, 0, k), stops=(4, 6, k + 10), steps=(1, 1, 1)),
            "transpose",
            perm=(1, 0, 2),
        )
        for k in (0, 10, 20)
    ]
    z = program.call(lambda a, b, c: a * b + c, *parts)
    flat = program.view(z, "reshape", shape=(24, 10))
    program.check([program.call(softmax, flat), y])


def test_a_small_value_is_not_computed_for_every_element():
    program = Calls()
    x, y = program.input((8,), FLOAT32), program.input((1000, 8), FLOAT32)
    z = program.call(lambda a: prim.exp(a), x)
    wide = program.view(z, "broadcast", shape=(1000, 8), dims=(1,))
    assert clusters(program.check([program.call(lambda a, b: a * b, y, wide)])) == 2


# ***** memory *****


def test_results_in_the_memory_of_inputs():
    program = Calls()
    w, g, m = (program.input((20, 30), FLOAT32) for _ in range(3))
    m2 = program.call(lambda a, b: a * 0.9 + b, m, g)
    w2 = program.call(lambda a, b: a - b * 0.1, w, m2)
    program.check([w2, m2], into={0: w, 1: m})


def test_old_contents_are_read_before_they_are_replaced():
    program = Calls()
    x, y = program.input((20, 20), FLOAT32), program.input((20, 20), FLOAT32)
    new = program.call(lambda a: prim.transpose(a, perm=(1, 0)) * 2.0, x)
    both = program.call(lambda a, b, c: a + b * c, x, new, y)  # old and new contents at once
    program.check([new, both], into={0: x})
    swapped = Calls()
    a, b = swapped.input((9,), FLOAT32), swapped.input((9,), FLOAT32)
    one, two = swapped.call(lambda v: v * 1.0 + 0.0, b), swapped.call(lambda v: v * 1.0 + 0.0, a)
    swapped.check([one, two], into={0: a, 1: b})


def test_outputs_that_are_inputs_views_or_twice():
    program = Calls()
    x = program.input((5, 6), FLOAT32)
    y = program.call(lambda a: prim.exp(a), x)
    view = program.view(y, "slice", starts=(1, 0), stops=(3, 6), steps=(1, 1))
    graph_outputs = [y, y, x]
    made = program.linked([*graph_outputs, Stored(view.value, y.storage, (6, 1))])
    found = program.run(made)
    assert found[0] == found[1] == bytes_of(y.storage) and found[2] == bytes_of(x.storage)
    assert found[3] == bytes_of(y.storage)[24:72]


def test_results_without_elements():
    program = Calls()
    x = program.input((0, 6), FLOAT32)
    y = program.call(lambda a: prim.exp(a), x)
    program.check([y, program.call(total(0), y)])


def test_the_plan_reuses_memory():
    program = Calls()
    x = program.input((64, 64), FLOAT32)
    y = x
    for _ in range(12):
        y = program.call(lambda a: prim.dot(a, a, dtype=a.dtype) * 0.01, y)
    made = program.check([y])
    assert made.peak == 2 * 64 * 64 * 4 < made.held
    assert "bytes at the peak" in made.explain()
    offsets, size = planned([(10, 0, 3), (100, 0, 0), (100, 1, 1), (64, 2, 3)])
    assert size == 192 and offsets[1] == offsets[2] == 0 and offsets[3] + 64 <= size


# ***** running *****


def test_independent_kernels_share_a_wave():
    program = Calls()
    outputs = [program.call(lambda a: prim.exp(a), program.input((k + 1, 7), FLOAT32)) for k in range(40)]
    made = program.check(outputs)
    assert len(made.waves) == 1 and len(made.launches) == 40


def test_steps_are_timed_one_by_one():
    program = Calls()
    x = program.input((30, 30), FLOAT64)
    y = program.call(softmax, program.call(lambda a: prim.dot(a, a, dtype=a.dtype), x))
    made = program.linked([y])
    ticks = iter(range(1000))
    result, seconds = made.timed([x.storage.ptr], lambda: next(ticks))
    assert bytes_of(result) == bytes_of(y.storage) and len(seconds) == len(made.steps()) and min(seconds) > 0


def test_failures_of_kernels_are_raised():
    program = Calls()
    table, at = program.input((4, 3), FLOAT32), program.input((5,), INT64)
    y = program.call(lambda a, i: prim.index(a, i), table, at)
    made = program.check([program.call(lambda a: prim.exp(a), y)])
    bad = Calls()
    wrong = bad.input((5,), INT64)
    pointer = wrong.storage.ptr

    backend_of(CPU).window(pointer, 8)[:] = (77).to_bytes(8, "little")
    with pytest.raises(IndexError, match="index 77 is out of bounds for dimension 0 with size 4"):
        made(table.storage.ptr, pointer)
    with pytest.raises(TypeError):
        made(table.storage.ptr)


def test_repeated_calls_are_compiled_once():
    program = Calls()
    x, w, b = program.input((16, 16), FLOAT32), program.input((16, 16), FLOAT32), program.input((16,), FLOAT32)
    y = x
    for _ in range(20):
        y = program.call(softmax, program.call(linear, y, w, b))
    made = program.check([y])
    assert len({c.compiled for c in made.linked.clusters}) <= 3
    assert len({c.unit.graph for c in made.linked.clusters}) <= 3 < len(made.linked.clusters)
    same = program.call(linear, x, w, b)
    again = program.call(linear, x, w, b)
    assert clusters(program.check([program.call(lambda p, q: p + q, same, again)])) <= 2


def test_graphs_with_borders_print_and_parse():
    program = Calls()
    x = program.input((3, 4), FLOAT32)
    y = program.call(lambda a, n: a * build.broadcast_to(n, a.shape), x, numbers=[(2.0, FLOAT32)])
    graph = program.builder.finish([y.value])
    assert to_source(parse(to_source(graph))) == to_source(graph)


# ***** random programs *****

ELEMENTS = (
    lambda a: prim.tanh(a), lambda a: prim.exp(-(a * a)), lambda a: a * 0.75 + 0.1, lambda a: prim.maximum(a, build.full_like(a, -0.5)),
    lambda a: prim.abs(a),
)  # fmt: skip


def narrowed(function, dtype):
    """A function in float32 on narrow floats, as operators compute them."""
    if dtype is not BFLOAT16:
        return function

    def wrapped(*xs):
        found = function(*[prim.convert(x, dtype=FLOAT32) for x in xs])
        found = found if isinstance(found, tuple) else (found,)
        made = tuple(prim.convert(v, dtype=BFLOAT16) for v in found)
        return made if len(made) > 1 else made[0]

    return wrapped


def random_call(program: Calls, rand: random.Random, x: Stored, dtype: DType) -> Stored:
    columns = x.shape[1]
    kind = rand.randrange(8)
    if kind < 3:
        return program.call(narrowed(rand.choice(ELEMENTS), dtype), x)
    if kind == 3:
        return program.call(narrowed(softmax, dtype), x)
    if kind == 4:
        return program.call(narrowed(normalized, dtype), x)[0]
    if kind == 5:
        return program.view(x, "transpose", perm=(1, 0))
    if kind == 6:
        weights = program.input((rand.choice((8, 33, 64)), columns), dtype)
        turned = program.view(weights, "transpose", perm=(1, 0))
        return program.call(lambda a, w: prim.dot(a, w, dtype=a.dtype), x, turned)
    sums = program.call(narrowed(total(rand.randrange(2)), dtype), x)
    at = 1 if sums.shape == (columns,) else 0
    wide = program.view(sums, "broadcast", shape=x.shape, dims=(at,))
    return program.call(narrowed(lambda a, b: a - b * 0.01, dtype), x, wide)


def random_program(seed: int):
    """A chain of calls, compared; its executable."""
    rand = random.Random(seed)
    dtype = rand.choice((FLOAT32, FLOAT64, BFLOAT16))
    program = Calls(seed)
    x = program.input((rand.choice((1, 5, 64, 300)), rand.choice((3, 16, 100, 1030))), dtype)
    made = []
    for _ in range(12):
        x = random_call(program, rand, x, dtype)
        made.append(x)
    whole = [v for v in made if v.offset == 0]
    kept = rand.sample(whole, min(3, len(whole)))
    last = program.call(narrowed(lambda a: a * 2.0, dtype), x)
    return program.check([v for v in kept if v.strides == kept_strides(v)] + [last])


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    assert random_program(seed).steps()


def kept_strides(x: Stored) -> tuple[int, ...]:
    """Row-major strides: what the calls here give their results."""
    return (x.shape[1], 1) if len(x.shape) == 2 else (1,)


# ***** passes *****


def attention_by_hand(program, lead, masked, scale):
    """Attention as several calls."""
    q, k, v = (program.input((*lead, 64, 16), FLOAT32) for _ in range(3))
    turned = program.view(k, "transpose", perm=(*range(len(lead)), len(lead) + 1, len(lead)))
    flat = 6

    def product(a, b):
        shape = (*a.shape[:-1], b.shape[-1])
        a, b = (build.reshape(x, (flat, *x.shape[-2:])) for x in (a, b))
        return build.reshape(prim.dot(a, b, dtype=FLOAT32), shape)

    scores = program.call(product, q, turned)
    if scale:
        scores = program.call(lambda a, n: a * build.broadcast_to(n, a.shape), scores, numbers=[(scale, FLOAT32)])
    if masked == "hide":
        rows = program.call(lambda: prim.iota(shape=(64, 64), dim=0, dtype=INT64))
        mask = program.call(lambda r: r < prim.iota(shape=(64, 64), dim=1, dtype=INT64), rows)
        wide = program.view(mask, "broadcast", shape=(*lead, 64, 64), dims=(len(lead), len(lead) + 1))
        hidden = -float("inf")
        scores = program.call(lambda m, s: build.select(m, build.full_like(s, hidden), s), wide, scores)
    elif masked == "add":
        scores = program.call(lambda s, m: s + m, scores, program.input((*lead, 64, 64), FLOAT32))
    return program.call(product, program.call(softmax, scores), v)


@pytest.mark.parametrize("masked", ["", "hide", "add"])
@pytest.mark.parametrize("lead", [(6,), (2, 3)])
def test_attention_by_hand_is_recognised_where_sums_may_be_reordered(lead, masked):
    program = Calls()
    y = attention_by_hand(program, lead, masked, 0.25)
    program.check([y])
    made = program.linked([y], options={"allow_reordering": True})
    assert any("attention" in note for note in made.notes), made.explain()
    assert "attention" in [step.name for step in made.steps()]
    found, wanted = (memoryview(b).cast("f").tolist() for b in (*program.run(made), bytes_of(y.storage)))
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) < 1e-5


def test_attention_whose_weights_are_kept_stays():
    program = Calls()
    a = program.input((6, 64, 64), FLOAT32)
    weights = program.call(softmax, program.call(lambda x: prim.dot(x, x, dtype=FLOAT32), a))
    y = program.call(lambda x, v: prim.dot(x, v, dtype=FLOAT32), weights, a)
    made = program.linked([y, weights], options={"allow_reordering": True})
    assert not any("attention" in note for note in made.notes)


@pytest.mark.parametrize("name", ["common_calls", "constants", "fusion", "in_place", "waves", "memory_plan"])
def test_every_pass_can_be_switched_off(name):
    program = Calls()
    w, x = program.input((16, 16), FLOAT32), program.input((16, 16), FLOAT32)
    half = program.call(lambda: build.full((16, 16), 0.5, FLOAT32))
    y = program.call(softmax, program.call(lambda a, b: a * b, x, half))
    for _ in range(3):
        y = program.call(softmax, program.call(lambda a, b: prim.dot(a, b, dtype=FLOAT32), y, x))
    same = program.view(program.view(x, "reshape", shape=(256,)), "reshape", shape=(16, 16))
    z = program.call(lambda a, b: prim.dot(a, b, dtype=FLOAT32), y, program.call(softmax, same))
    w2 = program.call(lambda a, b, c: a - b * c, w, z, half)
    again = program.call(softmax, x)
    program.check([w2, again], into={0: w}, options={name: False})
    plain, other = program.linked([w2, again], {0: w}), program.linked([w2, again], {0: w}, {name: False})
    known = {
        "common_calls": lambda e: e.linked.calls,
        "constants": lambda e: len(e.linked.clusters),
        "fusion": lambda e: len(e.linked.clusters),
        "in_place": lambda e: len(e.linked.clusters),
        "waves": lambda e: len(e.waves),
        "memory_plan": lambda e: e.peak,
    }[name]
    assert known(other) > known(plain)


def test_unknown_passes_are_refused():
    program = Calls()
    y = program.call(lambda a: prim.exp(a), program.input((3,), FLOAT32))
    with pytest.raises(ValueError, match="there is no pass 'fusoin'"):
        program.linked([y], options={"fusoin": False})


# ***** programs in two parts *****


def test_what_is_saved_for_backward_is_what_calls_leave():

    builder = GraphBuilder()
    x, ct = builder.input((4, 8), FLOAT32), builder.input((4, 8), FLOAT32)
    with builder:
        y, sums = prim.border(*summed(prim.operand(x, call=0)), strides=((8, 1), (1,)))
        spread = prim.broadcast(prim.operand(sums, call=1), shape=(4, 8), dims=(0,))
        (grad,) = prim.border(prim.operand(ct, call=1) * prim.operand(y, call=0) * spread, strides=((8, 1),))
    inside = y.node.inputs
    forward, _, saved = partition(Joint([x], [y], builder.nodes, [ct], [grad]))
    assert forward.outputs[1:] == (sums,) or saved[0][0] in ("input", "output")
    assert not set(inside) & set(forward.outputs)
    made = backend_of(CPU).compile(forward, [(8, 1)], [(8, 1)] + [(1,)] * (len(forward.outputs) - 1), CPU)
    assert made.linked.calls == 1


def summed(x):
    sums = prim.sum(x, dims=(1,))
    return x * prim.broadcast(sums, shape=x.shape, dims=(0,)), sums


def test_phases_hold_what_their_blocks_and_results_take():
    buffers = [(1000 * (k % 5 + 1), k, min(k + 3 * (k % 4), 39)) for k in range(40)]
    results = [(512 * k, 3 * k) for k in range(12)]
    for known in (4, 8):
        found = divided(buffers, results, 40, known)
        held = [
            sum(n for n, first, last in found.blocks if first <= p <= last)
            + sum(n for (n, _), at in zip(results, found.results, strict=True) if at <= p)
            for p in range(known)
        ]
        assert len(found.ends) == known and found.most == max(held)
