"""Generated code: other vector widths, transposing tiles, streaming stores, concatenation, in-place results, errors, explanations."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tests.kernels.kernel_harness import Ran, check, trace_arrays

from rushlight._backends.cpu.kernels import host
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, FLOAT32, INT64

rng = np.random.default_rng(1)


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def softmax(x):
    top = prim.amax(x, dims=(1,))
    e = prim.exp(x - build.keep_dims(top, x.shape, (1,)))
    return e / build.keep_dims(prim.sum(e, dims=(1,)), x.shape, (1,))


@pytest.mark.parametrize("vector_bytes", [8, 16, 32, 64])
def test_vector_widths(vector_bytes):
    target = host()._replace(vector_bytes=vector_bytes)
    for shape in ((3, 5), (33, 70), (20, 4000)):
        check(softmax, normal(*shape), rtol=1e-4, target=target)
        check(lambda x: prim.transpose(x, perm=(1, 0)), normal(*shape), target=target)
        check(lambda x: [prim.argmax(x, dim=0), prim.argmax(x, dim=1)], normal(*shape), target=target)
        check(lambda x: prim.cumsum(x, dim=0, reverse=True), normal(*shape), rtol=1e-3, atol=1e-4, target=target)


@pytest.mark.parametrize("vector_bytes", ["16", "32"])
def test_narrow_machine(run_python, vector_bytes, monkeypatch):
    """The instructions of a machine with narrow vectors, in a process of its own."""
    monkeypatch.setenv("RUSHLIGHT_VECTOR_BYTES", vector_bytes)
    code = (
        "import numpy as np\n"
        "from tests.kernels.test_codegen import softmax, normal, check, prim\n"
        "check(softmax, normal(37, 131), rtol=1e-4)\n"
        "check(lambda x: prim.transpose(x, perm=(1, 0)), normal(50, 70))\n"
        "check(lambda x: prim.sum(x, dims=(0,)), normal(500, 70), rtol=1e-3, atol=1e-4)\n"
    )
    from tests.conftest import ROOT

    done = run_python("-c", code, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shape", [(1, 5), (8, 8), (16, 16), (17, 33), (100, 70), (7, 300), (257, 129)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "bool", "complex64"])
def test_transposing_copies(shape, dtype):
    x = (normal(*shape) * 50).astype(dtype)
    check(lambda v: prim.transpose(v, perm=(1, 0)), x)
    check(lambda v, w: prim.select(prim.eq(v, prim.transpose(w, perm=(1, 0))), v, v), x, np.ascontiguousarray(x.T))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8", "bool", "complex64"])
@pytest.mark.parametrize(
    "shape", [(9, 8, 8), (7, 16, 16), (5, 31, 33), (3, 24, 40), (2, 4, 6), (6, 10, 300), (4, 300, 10), (3, 200, 5)]
)
def test_small_matrices_are_transposed_in_tiles_that_fit_them(shape, dtype):
    x = (normal(*shape) * 50).astype(dtype)
    ran = check(lambda x: prim.transpose(x, perm=(0, 2, 1)), x)
    if dtype == "complex64":
        assert "tile" not in ran.program.steps[0].kernel.text()
    elif shape[2] not in (5, 10):  # else lanes that share lines of memory need no tiles
        assert "tile" in ran.program.steps[0].kernel.text()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8", "bool", "complex64"])
@pytest.mark.parametrize(("size", "step"), [(5, 2), (130, 2), (1000, 2), (301, 3), (77, 7)])
def test_elements_stored_in_even_steps(size, step, dtype):
    parts = [(normal(9, size) * 50).astype(dtype) for _ in range(step)]
    check(lambda *p: prim.cat(*[prim.reshape(x, shape=(9, size, 1)) for x in p], dim=2), *parts)


def test_large_transpose_goes_by_tiles():
    x = normal(64, 48)
    ran = check(lambda v: prim.transpose(v, perm=(1, 0)), x)
    assert "tile" in ran.program.steps[0].kernel.text()


def test_streaming_stores():
    target = host()._replace(l3_bytes=1024)
    for n in (1000, 4096, 100_003):
        ran = check(lambda v: v + 1.0, normal(n), target=target)
        assert "stream" in ran.program.steps[0].kernel.text()


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 16), ("float64", 8), ("int16", 32)])
def test_large_transposed_results_are_streamed_by_whole_lines(vector_bytes, dtype, lanes):
    target = host()._replace(vector_bytes=vector_bytes, l3_bytes=1024)
    x = (normal(2, 128, 70) * 50).astype(dtype)
    ran = check(lambda v: prim.transpose(v, perm=(0, 2, 1)), x, target=target)
    text = ran.program.steps[0].kernel.text()
    assert "tile" in text and "stream" in text and f"section width {lanes} " in text


def test_concatenation_is_one_kernel_without_selects():
    ran = check(lambda a, b, c: prim.cat(a, b, c, dim=1), normal(30, 5), normal(30, 64), normal(30, 100))
    assert len(ran.program.steps) == 1
    text = ran.program.steps[0].kernel.text()
    assert text.count("section") == 3 and "select" not in text
    check(lambda a, b: prim.cat(a, b, dim=0), normal(400, 300), normal(2, 300))


def test_concatenations_of_concatenations_ask_nothing_either():
    def frame(x, left, above):
        return prim.cat(above, prim.cat(left, x, left, dim=2), above, dim=1)

    arrays = normal(3, 20, 40), normal(3, 20, 2), normal(3, 1, 44)
    ran = check(frame, *arrays)
    (text,) = [step.kernel.text() for step in ran.program.steps]
    assert text.count("section") == 5 and "select" not in text
    kept = check(
        lambda x, left: [(inner := prim.cat(left, x, dim=1)), prim.cat(inner, inner * 2.0, dim=0)],
        normal(20, 40),
        normal(20, 2),
    )
    assert len(kept.results) == 2


def test_what_a_scatter_is_told_is_computed_in_vectors_first():
    def spread(x, at, y):
        places = build.convert(
            prim.floor(prim.exp(prim.sin(at))), INT64
        )  # of 1, 2: expensive, and the same for both rows
        return prim.scatter(x, prim.broadcast(places, shape=(2, 100), dims=(1,)), y * 2.0, dim=1, reduce="add")

    ran = check(spread, normal(2, 5), normal(100), normal(2, 100), rtol=1e-4, atol=1e-4)
    first, *_, last = [step.kernel.text() for step in ran.program.steps]
    assert "exp" in first and "lanes" in first and "exp" not in last and "mul" in last


def test_the_parts_of_a_concatenation_are_laid_out_one_by_one(monkeypatch):
    from rushlight._codegen import nest

    asked, plain = [], nest.even

    def even(*args):
        asked.append(args)
        return plain(*args)

    monkeypatch.setattr(nest, "even", even)
    counts = []
    for parts in (10, 20):
        asked.clear()
        check(lambda *xs: prim.cat(*xs, dim=0), *[normal(3, 4) for _ in range(parts)])
        counts.append(len(asked))
    assert 0 < counts[1] <= 2.5 * counts[0]  # no part looks at the places of the others


@pytest.mark.parametrize("flip", [False, True])
def test_written_in_place(flip):
    x, y = normal(33, 20), normal(33, 20)
    graph = trace_arrays(lambda a, b: prim.flip(a, dims=(0,)) + b if flip else a + b, [x, y])
    want = (x[::-1] if flip else x) + y
    ran = Ran(graph, [x, y], aliases={0: 0})
    np.testing.assert_array_equal(x, want)
    assert ran.results == [] and len(ran.program.steps) == (2 if flip else 1)


def test_a_column_written_in_place_through_a_temporary():
    x = normal(5, 1)
    graph = trace_arrays(lambda a: prim.flip(a, dims=(0,)), [x])
    want = x[::-1].copy()
    Ran(graph, [x], aliases={0: 0})
    np.testing.assert_array_equal(x, want)


def test_softmax_in_place():
    x = normal(33, 200)
    want = np.exp(x - x.max(1, keepdims=True))
    want /= want.sum(1, keepdims=True)
    ran = Ran(trace_arrays(softmax, [x]), [x], aliases={0: 0})
    np.testing.assert_allclose(x, want, rtol=1e-4)
    assert len(ran.program.steps) == 1


@pytest.mark.parametrize("accumulate", [False, True])
def test_rows_written_in_place(accumulate):
    x, v, i = normal(50, 33), normal(8, 33), np.array([3, 7, 3, 49, -50, 7, 7, 1])
    want = x.copy()
    if accumulate:
        np.add.at(want, i, v)
    else:
        for row, k in zip(v, i, strict=True):
            want[k] = row
    ran = Ran(
        trace_arrays(lambda a, b, c: prim.index_put(a, b, c, accumulate=accumulate), [x, v, i]),
        [x, v, i],
        aliases={0: 0},
    )
    np.testing.assert_allclose(x, want, rtol=1e-6)
    assert len(ran.program.steps) == 1 and ran.executable.kernel is not None


@pytest.mark.parametrize("perm", [(1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_places_of_later_dims_written_in_place(perm):
    """A cache of keys: one kernel writes the places, and nothing is copied."""
    back = tuple(np.argsort(perm))
    x, i = normal(5, 6, 7), np.array([3, 0, -1])
    v = normal(*(len(i) if d == perm[0] else n for d, n in enumerate(x.shape)))
    want = x.copy()
    want.transpose(perm)[i] = v.transpose(perm)

    def put(a, b, c):
        moved, values = (prim.transpose(y, perm=perm) for y in (a, b))
        return prim.transpose(prim.index_put(moved, values, c, accumulate=False), perm=back)

    ran = Ran(trace_arrays(put, [x, v, i]), [x, v, i], aliases={0: 0})
    np.testing.assert_array_equal(x, want)
    assert len(ran.program.steps) == 1


def test_a_transposed_result_written_over_its_operand():
    x, v, i = normal(6, 6), normal(2, 6), np.array([4, 1])
    want = x.copy()
    want[i] = v
    put = trace_arrays(
        lambda a, b, c: prim.transpose(prim.index_put(a, b, c, accumulate=False), perm=(1, 0)), [x, v, i]
    )
    Ran(put, [x, v, i], aliases={0: 0})
    np.testing.assert_array_equal(x, want.T)


def test_scatter_in_place_that_reads_itself():
    x, i = normal(6, 9), rng.integers(0, 9, (6, 9))
    want = x.copy()
    np.add.at(want, (np.arange(6)[:, None], i), np.tanh(x))
    Ran(
        trace_arrays(lambda a, b: prim.scatter(a, b, prim.tanh(a), dim=1, reduce="add"), [x, i]), [x, i], aliases={0: 0}
    )
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-6)


def test_what_is_written_in_place_first_and_read_by_others_later():
    x = normal(300, 200)
    graph = trace_arrays(lambda a: (a + 1.0, prim.sum(a, dims=(1,)), prim.cumsum(a, dim=0, reverse=False)), [x])
    want = x + 1, x.sum(1), x.cumsum(0)
    ran = Ran(graph, [x], aliases={0: 0})
    np.testing.assert_array_equal(x, want[0])
    for found, wanted in zip(ran.results, want[1:], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_an_input_that_shares_memory_with_the_output():
    memory = np.arange(100, dtype=np.float32)
    a, b = memory[:99], memory[1:]
    graph = trace_arrays(lambda x, y: x + y, [a, b])
    want = a + b
    Ran(graph, [a, b], aliases={0: 1}, overlaps={0: (0,)})
    np.testing.assert_array_equal(memory[1:], want)


def test_output_strides():
    x = normal(6, 7, 8)
    ran = check(lambda v: v * 2.0, x, out_strides=[(1, 48, 6)])
    assert len(ran.program.steps) == 1


def test_indices_are_checked():
    w, i = normal(50, 30), np.array([3, -50, 49, 50])
    with pytest.raises(IndexError, match="index 50 is out of bounds for dimension 0 with size 50"):
        Ran(trace_arrays(lambda a, b: prim.index(a, b), [w, i]), [w, i])
    j = np.full((50, 30), -31)
    with pytest.raises(RuntimeError, match="index -31 is out of bounds for dimension 1 with size 30"):
        Ran(trace_arrays(lambda a, b: prim.gather(a, b, dim=1), [w, j]), [w, j])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8", "complex64"])
@pytest.mark.parametrize(
    ("rows", "columns", "picked"), [(5, 1025, 1025), (3, 2000, 700), (7, 3000, 3001), (1, 600, 5000)]
)
def test_the_next_row_is_asked_for_while_one_is_picked_from(rows, columns, picked, dtype):
    """Rows that fit the nearest cache and of which most lines are wanted; the one behind the last is no row, and is not read."""
    x = (rng.standard_normal((rows, columns)) * 50).astype(dtype)
    ran = check(lambda x, i: prim.gather(x, i, dim=1), x, rng.integers(0, columns, (rows, picked)))
    size = columns * x.itemsize
    asked = rows > 1 and 1 << 11 <= size <= 1 << 14 and picked >= 2 * -(-size // 64)
    assert asked == ("ahead" in ran.program.steps[0].kernel.text())


@pytest.mark.parametrize(("dtype", "pieces"), [("float32", 16), ("bool", 4), ("float64", 16)])
def test_zeros_are_counted_as_wide_as_they_are(dtype, pieces):
    """Nothing but the store tells how much memory a constant fills."""
    ran = check(lambda x: build.zeros_like(x), np.ones(1 << 20, dtype))
    assert ran.program.steps[0].kernel.pieces == pieces


def test_unread_places_are_not_checked():
    """What a pad hides may be out of range."""
    w = normal(4, 4)

    def shifted(x):
        places = prim.sub(prim.iota(shape=(4, 4), dim=1, dtype=_int64()), build.full((4, 4), 4, _int64()))
        return prim.pad(prim.gather(x, places, dim=1), value=0.0, lo=(2, 3), hi=(1, 2), interior=(1, 0))

    check(shifted, w)


def _int64():
    from rushlight._types.dtype import INT64

    return INT64


def test_bfloat16():
    x = (normal(1000).view(np.uint32) & 0xFFFF0000).view(np.float32)
    ran = check(lambda v: build.convert(build.convert(v, FLOAT32) * 1.5, BFLOAT16), x, dtypes=[BFLOAT16])
    assert len(ran.program.steps) == 1
    a, b = ((normal(20, 30).view(np.uint32) & 0xFFFF0000).view(np.float32) for _ in range(2))
    check(
        lambda p, q: build.dot(p, prim.transpose(q, perm=(1, 0))),
        a,
        b,
        dtypes=[BFLOAT16, BFLOAT16],
        rtol=2e-2,
        atol=1e-2,
    )


def test_empty_and_zero_dims():
    check(lambda a: a + 1.0, normal(0, 3))
    check(lambda a: prim.exp(a), np.array(0.5, np.float32))
    check(lambda a: prim.sum(a, dims=(0,)), normal(0, 3))
    check(lambda a: [prim.sum(a, dims=(0, 1)), a], normal(0, 3))


def test_long_chains_read_what_they_need():
    def chain(x, *weights):
        for w in weights:
            x = x + prim.tanh(build.dot(x, w))
        return prim.sum(x * x, dims=(0, 1))

    arrays = [normal(16, 16) * 0.1 for _ in range(20)]
    ran = check(chain, *arrays, rtol=1e-4)
    assert max(len(s.words) for s in ran.program.steps if hasattr(s, "words")) <= 10


@pytest.mark.parametrize("shape", [(20, 30), (2, 90_000)])
def test_many_results(shape):
    def many(x):
        parts = [prim.sum(x * float(k), dims=(1,)) for k in range(1, 5)] + [
            prim.amax(x * float(k), dims=(1,)) for k in range(1, 5)
        ]
        return [*parts, x + 1.0, x + 2.0, x * 3.0, x * 4.0, x * 5.0, x * 6.0, x * 7.0]

    check(many, normal(*shape), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("size", [3, 8, 70])
def test_two_costly_values_of_three_passes(size):
    """A result has room for one value that is kept for the last pass."""

    def three_passes(a, b, c):
        first = b * prim.exp(a)
        total = prim.sum(-first, dims=(0,))
        second = build.broadcast_to(total, a.shape) * prim.exp(c)
        return first + second + build.broadcast_to(total + prim.sum(-second, dims=(0,)), a.shape)

    check(three_passes, normal(size), normal(size), normal(size), rtol=1e-4, atol=1e-4)


def test_explain():
    ran = check(softmax, normal(20, 30), rtol=1e-4)
    text = ran.executable.explain(asm=True)
    for part in ("amax", "group 0", "reduce over", "define i32", "slots", "ret"):
        assert part in text, part
    assert sys.getsizeof(text) > 1000


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("rows", [40, 700])
def test_numbers_of_rows_leave_vectors_as_wide_as_their_elements(vector_bytes, rows):
    """Whole rows are fetched by int64 numbers: what is the same for all lanes does not take lanes."""
    target, lanes = host()._replace(vector_bytes=vector_bytes), vector_bytes // 4
    table, at = normal(50, 96), rng.integers(0, 50, (rows, 5))
    fetched = check(lambda x, i: prim.index(x, i), table, at[:, 0].copy(), target=target)
    assert f"section width {lanes} " in fetched.program.steps[0].kernel.text()
    summed = check(lambda x, i: prim.sum(prim.index(x, i), dims=(1,)), table, at, target=target, rtol=1e-4, atol=1e-4)
    assert f"section width {lanes} " in summed.program.steps[0].kernel.text()
    # numbers that lanes hold do
    added = check(
        lambda x, i: x + prim.convert(i, dtype=FLOAT32), normal(rows, 64), rng.integers(0, 9, (rows, 64)), target=target
    )
    assert f"section width {max(2, lanes // 2)} " in added.program.steps[0].kernel.text()
