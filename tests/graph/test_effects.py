"""Effects: memory and random streams, in order, in graphs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.null import compile_graph
from rushlight._backends.reference import run
from rushlight._base.errors import NotDifferentiableError
from rushlight._graph.core import EffectOrderError, Graph, GraphBuilder, Reference, rebuilt, trace
from rushlight._graph.frames import graph_frame, graph_from
from rushlight._graph.printer import parse, to_source
from rushlight._graph.verifier import GraphError, verify
from rushlight._prims import PRIMITIVES, not_differentiable
from rushlight._prims.draws import STREAM, seeded
from rushlight._prims.effects import EFFECTS, EffectPrimitive, prim
from rushlight._transforms.batching import batch
from rushlight._transforms.functionalize import functionalize
from rushlight._transforms.jvp import jvp
from rushlight._transforms.simplify import simplify
from rushlight._transforms.vjp import reached, vjp
from rushlight._types.dtype import BOOL, BY_NAME, FLOAT32, FLOAT64, INT64

UNIFORM = {"shape": (3,), "dtype": FLOAT32, "low": 0.0, "high": 1.0}


def counter() -> Graph:
    """Memory is read, noise from a stream is added to it, and twice the result is given."""
    builder = GraphBuilder()
    memory, stream = builder.reference("memory", (3,), FLOAT32), builder.reference("stream", *STREAM)
    with builder:
        before = prim.read(memory)
        after, noise = prim.draw_uniform(stream, **UNIFORM)
        written = prim.write(memory, before + noise, views=())
        twice = prim.read(written) * 2.0
    return builder.finish([written, after, twice])


# ***** records *****


WITH_EFFECTS = [p for p in EFFECTS.values() if isinstance(p, EffectPrimitive)]


@pytest.mark.parametrize("primitive", WITH_EFFECTS, ids=lambda p: p.name)
def test_record_is_complete(primitive: EffectPrimitive) -> None:
    assert primitive.name not in PRIMITIVES
    assert primitive.doc.endswith(".") and primitive.effect is not None
    assert primitive.family in ("memory", "draw")
    for rule in (primitive.vjp, primitive.jvp):
        assert callable(rule) or (isinstance(rule, not_differentiable) and rule.why)
    assert getattr(prim, primitive.name) is primitive and pickle.loads(pickle.dumps(primitive)) is primitive


@pytest.mark.parametrize("primitive", WITH_EFFECTS, ids=lambda p: p.name)
def test_reference_keeps_the_spec_and_its_operands(primitive: EffectPrimitive) -> None:
    effect = primitive.effect
    assert effect is not None
    for arrays, params in primitive.samples():
        builder = GraphBuilder()
        xs = [
            builder.reference(effect.reference, a.shape, BY_NAME[a.dtype.name])
            if effect.takes_reference and not i
            else builder.input(a.shape, BY_NAME[a.dtype.name])
            for i, a in enumerate(arrays)
        ]
        with builder:
            made = primitive(*xs, **params)
        graph = builder.finish(made if primitive.multiple else [made])
        verify(graph)
        assert to_source(parse(to_source(graph))) == to_source(graph)
        before = [a.copy() for a in arrays]
        run(graph, arrays)
        for a, b in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(a, b)


def test_primitives_without_effects_say_so() -> None:
    assert all(p.effect is None for p in PRIMITIVES.values())


def test_where_gradients_stop() -> None:
    graph = trace(lambda x: prim.stop_gradient(x * x) * x, [((3,), FLOAT64)])
    verify(graph)
    assert to_source(parse(to_source(graph))) == to_source(graph)
    x = np.array([1.0, 2, 3])
    gradient = vjp(graph, [0])
    (y,) = run(graph, [x])
    outs = run(gradient.forward, [x])
    held = {"input": [x], "output": outs, "residual": outs[1:]}
    (grad,) = run(gradient.backward, [*(held[kind][i] for kind, i in gradient.saved), np.ones(3)])
    assert y.tolist() == [1, 8, 27] and grad.tolist() == [1, 4, 9]
    assert run(jvp(graph, [True]), [x, np.ones(3)])[1].tolist() == [1, 4, 9]
    assert run(batch(graph, [True], 2), [np.stack([x, x])])[0].tolist() == [[1, 8, 27]] * 2
    assert reached(trace(lambda x: prim.stop_gradient(x), [((3,), FLOAT64)]), [0]) == [False]
    assert len(compile_graph(graph).kernels) == 1


# ***** graphs *****


def test_the_reference_backend_runs_effects() -> None:
    memory = np.ones(3, dtype=np.float32)
    written, stream, twice = run(counter(), [memory, seeded(4)])
    generator = torch.Generator().manual_seed(4)
    noise = torch.rand(3, generator=generator)
    np.testing.assert_array_equal(written, np.float32(1) + np.array(noise.tolist(), dtype=np.float32))
    np.testing.assert_array_equal(twice, 2 * written)
    assert stream.tolist() == generator.get_state().tolist()
    assert memory.tolist() == [1, 1, 1]


def test_print_and_parse() -> None:
    text = to_source(counter())
    assert 'x0: "memory float32[3]", x1: "stream uint8[5056]"' in text
    assert "prim.write(x0, v3, views=())  # memory float32[3]" in text
    again = parse(text)
    assert to_source(again) == text
    verify(again)
    assert isinstance(again.inputs[1], Reference) and again.inputs[1].kind == "stream"


@pytest.mark.parametrize("change", [rebuilt, simplify, lambda g: graph_from(graph_frame(g, n := []), n)])
def test_passes_keep_effects(change) -> None:
    graph = counter()
    again = change(graph)
    verify(again)
    assert to_source(again) == to_source(graph)


def test_effects_that_nobody_reads_are_kept() -> None:
    builder = GraphBuilder()
    memory, stream = builder.reference("memory", (3,), FLOAT32), builder.reference("stream", *STREAM)
    with builder:
        memory = prim.write(memory, prim.read(memory) + 1.0, views=())
        memory = prim.write(memory, prim.read(memory) * 3.0, views=())
        stream, _ = prim.draw_uniform(stream, **UNIFORM)
        stream, _ = prim.draw_uniform(stream, **UNIFORM)
    graph = rebuilt(builder.finish([memory, stream]))
    names = [n.prim.name for n in graph.nodes]
    assert names.count("write") == 2 and names.count("draw_uniform") == 2
    written, _ = run(graph, [np.zeros(3, dtype=np.float32), seeded(0)])
    assert written.tolist() == [3, 3, 3]


def test_equal_draws_and_allocations_are_two() -> None:
    builder = GraphBuilder()
    x, stream = builder.input((3,), FLOAT32), builder.reference("stream", *STREAM)
    with builder:
        one, other = prim.allocate(x), prim.allocate(x)
        stream, a = prim.draw_uniform(stream, **UNIFORM)
        stream, b = prim.draw_uniform(stream, **UNIFORM)
        one = prim.write(one, a, views=())
    found = run(
        builder.finish([prim_read(builder, one), prim_read(builder, other), a, b, stream]),
        [np.zeros(3, np.float32), seeded(0)],
    )
    assert found[0].tolist() == found[2].tolist() != found[3].tolist()
    assert found[1].tolist() == [0, 0, 0]


def prim_read(builder: GraphBuilder, memory):
    with builder:
        return prim.read(memory)


def test_memory_of_its_own_that_nobody_reads_is_dropped() -> None:
    def function(x):
        memory = prim.allocate(x)
        prim.write(memory, x + 1.0, views=())
        return x * 2.0

    assert [n.prim.name for n in trace(function, [((3,), FLOAT32)]).nodes] == ["full", "mul"]


# ***** what is refused *****


def test_the_builder_refuses_references_that_were_replaced() -> None:
    builder = GraphBuilder()
    memory = builder.reference("memory", (3,), FLOAT32)
    with builder:
        after = prim.write(memory, prim.read(memory), views=())
        assert builder.latest(memory) is after
        with pytest.raises(
            EffectOrderError,
            match="prim.read uses Reference.memory..float32.3. from input., which a later effect has replaced",
        ):
            prim.read(memory)
        with pytest.raises(EffectOrderError, match="prim.write uses"):
            prim.write(memory, prim.read(after), views=())
    with pytest.raises(EffectOrderError, match="output 0 is Reference"):
        builder.finish([memory])
    with pytest.raises(
        EffectOrderError, match=r"no output holds what effects make of input 0 \(memory\): they would be lost"
    ):
        builder.finish([])


def test_the_builder_keeps_references_and_arrays_apart() -> None:
    builder = GraphBuilder()
    memory, stream, x = (
        builder.reference("memory", (3,), FLOAT32),
        builder.reference("stream", *STREAM),
        builder.input((3,), FLOAT32),
    )
    with builder:
        with pytest.raises(
            TypeError, match="'exp' takes arrays, got a reference to a memory; `prim.read` gives what memory holds"
        ):
            prim.exp(memory)
        with pytest.raises(TypeError, match="'read' takes a reference to a memory, got Value"):
            prim.read(x)
        with pytest.raises(TypeError, match="'draw_uniform' takes a reference to a stream, got Reference.memory"):
            prim.draw_uniform(memory, **UNIFORM)
        with pytest.raises(TypeError, match="'write' takes arrays, got a reference to a stream"):
            prim.write(memory, stream, views=())
        with pytest.raises(TypeError, match="'write' takes traced values, got float"):
            prim.write(memory, 1.0, views=())
        with pytest.raises(ValueError, match=r"prim.write puts float32\[2\] into this memory, got float32\[3\]"):
            prim.write(memory, x, views=(("slice", (("starts", (1,)), ("stops", (3,)), ("steps", (1,)))),))
        with pytest.raises(ValueError, match=r"elements of \[3\] are repeated in \[2, 3\]"):
            prim.write(memory, x, views=(("broadcast", (("shape", (2, 3)), ("dims", (1,)))),))
        with pytest.raises(ValueError, match="not through 'flip'"):
            prim.write(memory, x, views=(("flip", (("dims", (0,)),)),))


def test_the_verifier_finds_a_read_that_was_moved_across_a_write() -> None:
    graph = counter()
    nodes = list(graph.nodes)
    verify(graph)
    nodes.append(nodes.pop(0))  # the first read, behind the write: what it feeds is behind it as well
    with pytest.raises(GraphError, match="read before it is made"):
        verify(Graph(graph.inputs, nodes, graph.outputs))
    builder = GraphBuilder()
    memory, x = builder.reference("memory", (3,), FLOAT32), builder.input((3,), FLOAT32)
    with builder:
        old = prim.read(memory)
        new = prim.write(memory, x, views=())
    read, write = builder.nodes
    verify(Graph(builder.inputs, [read, write], [new, old]))
    with pytest.raises(
        GraphError, match=r"prim.read: operand 0 \(memory float32\[3\]\) was replaced by prim.write, which comes before"
    ) as found:
        verify(Graph(builder.inputs, [write, read], [new, old]))
    assert "->" in str(found.value)


def test_the_verifier_finds_two_effects_on_one_version_and_lost_ones() -> None:
    builder = GraphBuilder()
    stream = builder.reference("stream", *STREAM)
    with builder:
        first, _ = prim.draw_uniform(stream, **UNIFORM)
    again = GraphBuilder()
    again.inputs = [stream]
    with again:
        second, _ = prim.draw_uniform(stream, **UNIFORM)
    both = [*builder.nodes, *again.nodes]
    with pytest.raises(
        GraphError, match=r"prim.draw_uniform: operand 0 \(stream uint8\[5056\]\) was replaced by prim.draw_uniform"
    ):
        verify(Graph([stream], both, [first, second]))
    with pytest.raises(
        GraphError, match=r"no output holds what effects make of input 0 \(stream uint8\[5056\]\): they would be lost"
    ):
        verify(Graph([stream], builder.nodes, []))
    with pytest.raises(GraphError, match="output 1 .stream uint8.5056.. was replaced"):
        verify(Graph([stream], builder.nodes, [first, stream]))


def test_kernels_are_not_made_of_effects() -> None:
    with pytest.raises(NotImplementedError, match="no kernel computes prim.read"):
        compile_graph(counter())


# ***** transforms *****


def dropout() -> Graph:
    """x times a mask that is drawn."""
    builder = GraphBuilder()
    x, stream = builder.input((3, 5), FLOAT32), builder.reference("stream", *STREAM)
    with builder:
        stream, mask = prim.draw_bernoulli(stream, shape=(3, 5), dtype=FLOAT32, p=0.5, value=2.0)
        y = prim.exp(x) * mask
    return builder.finish([y, stream])


def test_a_draw_is_made_once_for_forward_and_backward() -> None:
    gradient = vjp(dropout(), [0])
    verify(gradient.forward)
    verify(gradient.backward)
    assert [n.prim.name for n in gradient.forward.nodes].count("draw_bernoulli") == 1
    assert all(n.prim.effect is None for n in gradient.backward.nodes)
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)
    outs = run(gradient.forward, [x, seeded(2)])
    held = {"input": [x, None], "output": outs, "residual": outs[2:]}
    (grad,) = run(gradient.backward, [*(held[kind][i] for kind, i in gradient.saved), np.ones_like(x)])
    np.testing.assert_allclose(grad, outs[0], rtol=1e-6)  # exp is its own derivative


def test_tangents_go_past_a_draw() -> None:
    graph = jvp(dropout(), [True, False])
    verify(graph)
    x = np.zeros((3, 5), dtype=np.float32)
    y, _, moved = run(graph, [x, seeded(2), np.ones_like(x)])
    np.testing.assert_array_equal(y, moved)


def test_draws_in_a_batch() -> None:
    graph, x = dropout(), np.zeros((4, 3, 5), dtype=np.float32)
    with pytest.raises(RuntimeError, match="say whether it draws the same numbers"):
        batch(graph, [True, False], 4)
    same, _ = run(batch(graph, [True, False], 4, "same"), [x, seeded(1)])
    different, after = run(batch(graph, [True, False], 4, "different"), [x, seeded(1)])
    assert (same == same[0]).all() and not (different == different[0]).all()
    generator = torch.Generator().manual_seed(1)
    wanted = torch.empty(4, 3, 5).bernoulli_(0.5, generator=generator) * 2
    assert different.tolist() == wanted.tolist() and after.tolist() == generator.get_state().tolist()
    with pytest.raises(RuntimeError, match="one for all items of a batch"):
        batch(graph, [True, True], 4, "same")


def test_memory_must_be_functionalized_first() -> None:
    def function(x):
        memory = prim.write(prim.allocate(x), x * x, views=())
        return prim.read(memory)

    graph = trace(function, [((3,), FLOAT32)])
    with pytest.raises(NotDifferentiableError, match="functionalize"):
        vjp(graph, [0])
    with pytest.raises(NotDifferentiableError, match="functionalize"):
        jvp(graph, [True])
    with pytest.raises(RuntimeError, match="functionalize"):
        batch(graph, [True], 4)
    pure = functionalize(graph).graph
    assert [n.prim.name for n in pure.nodes] == ["mul"]
    gradient = vjp(pure, [0])
    assert gradient.saved == [("input", 0)]


# ***** the numbers of a stream *****


def state(generator: torch.Generator) -> np.ndarray:
    return np.array(generator.get_state().tolist(), dtype=np.uint8)


DRAWS = {
    "draw_uniform": (lambda x, g: x.uniform_(-1, 2, generator=g), {"low": -1.0, "high": 2.0}, 0),
    "draw_normal": (lambda x, g: x.normal_(1, 2, generator=g), {"mean": 1.0, "std": 2.0, "serial": False}, 1e-5),
    "draw_exponential": (lambda x, g: x.exponential_(2.5, generator=g), {"rate": 2.5}, 1e-6),
    "draw_bernoulli": (lambda x, g: x.bernoulli_(0.3, generator=g), {"p": 0.3, "value": 1.0}, 0),
    "draw_integers": (lambda x, g: x.random_(-5, 70, generator=g), {"low": -5, "high": 70}, 0),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("shape", [(), (7,), (16,), (3, 11), (40, 40)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_stream_gives_the_numbers_of_a_generator(name: str, shape: tuple[int, ...], dtype: str) -> None:
    fill, params, close = DRAWS[name]
    generator = torch.Generator().manual_seed(11)
    torch.randn(3, generator=generator)  # a normal number waits, and words are left
    before = state(generator)
    wanted = fill(torch.empty(shape, dtype=getattr(torch, dtype)), generator)
    after, drawn = EFFECTS[name].reference(before, shape=shape, dtype=BY_NAME[dtype], **params)
    assert after.tolist() == state(generator).tolist()
    np.testing.assert_allclose(drawn, np.array(wanted.tolist()), rtol=close, atol=close)


def test_large_ranges_permutations_and_probabilities() -> None:
    generator = torch.Generator().manual_seed(0)
    before, wanted = state(generator), torch.randint(-(2**40), 2**40, (9,), generator=generator)
    after, drawn = EFFECTS["draw_integers"].reference(before, shape=(9,), dtype=INT64, low=-(2**40), high=2**40)
    assert drawn.tolist() == wanted.tolist() and after.tolist() == state(generator).tolist()
    before, wanted = after, torch.randperm(50, generator=generator)
    after, drawn = EFFECTS["draw_permutation"].reference(before, shape=(50,), dtype=INT64)
    assert drawn.tolist() == wanted.tolist() and after.tolist() == state(generator).tolist()
    for dtype in (torch.float32, torch.float64):
        chances = torch.linspace(0, 1, 30, dtype=dtype)
        before, wanted = state(generator), torch.bernoulli(chances, generator=generator)
        given = np.array(chances.tolist(), dtype="float32" if dtype is torch.float32 else "float64")
        after, drawn = EFFECTS["draw_bernoulli_each"].reference(before, given, dtype=BOOL)
        assert drawn.tolist() == [bool(v) for v in wanted.tolist()] and after.tolist() == state(generator).tolist()


def test_a_seed_is_a_stream() -> None:
    for seed in (0, 5, -1, 2**40 + 3):
        assert seeded(seed).tolist() == state(torch.Generator().manual_seed(seed)).tolist()
