"""Element-wise results that are computed again, and memory in phases: less memory, the same bytes."""

import random

import pytest
from tests.kernels.call_programs import Calls
from tests.kernels.test_linked_programs import normalized

from rushlight._backends.cpu import kernels
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program import phases
from rushlight._backends.cpu.program.phases import divided
from rushlight._prims.effects import prim
from rushlight._types.dtype import FLOAT32


@pytest.fixture
def everything(monkeypatch):
    """Results of any size are computed again, programs of any size are divided."""
    target = host()
    limits = target.policy.recompute._replace(least_bytes=1, least_total=1)
    monkeypatch.setattr(kernels, "_TARGET", [target._replace(policy=target.policy._replace(recompute=limits))])
    monkeypatch.setattr(phases, "LEAST_BYTES", 1)
    monkeypatch.setattr(phases, "LEAST_HOSTED", 1)


def there_and_back(layers, activation=prim.tanh):
    """A chain of products whose activations are read on the way back."""
    program = Calls()
    x, weights = program.input((16, 24), FLOAT32), [program.input((24, 24), FLOAT32) for _ in range(layers)]
    held, y = [], x
    for w in weights:
        product = program.call(lambda a, b: prim.dot(a, b, dtype=a.dtype), y, w)
        y = program.call(activation, product)
        held.append((product, y))
    gradients, g = [], y
    for w, (product, y) in zip(reversed(weights), reversed(held), strict=True):
        g = program.call(lambda g, p: g * prim.cos(p), g, product)
        gradients.append(program.call(lambda a, b: prim.dot(prim.transpose(a, perm=(1, 0)), b, dtype=a.dtype), y, g))
        g = program.call(lambda a, b: prim.dot(a, prim.transpose(b, perm=(1, 0)), dtype=a.dtype), g, w)
    return program, [g, *gradients]


def notes(executable):
    return [note for note in executable.linked.notes if note.startswith("recompute")]


def test_activations_are_computed_again(everything):
    program, wanted = there_and_back(8)
    made = program.check(wanted)
    kept = program.check(wanted, options={"recompute": False})
    assert notes(made) and not notes(kept)
    assert made.division.most < kept.division.most
    assert len(made.division.ends) > 1 or min(block for block, _ in made.division.places) < 0


def test_norms_read_the_sums_of_the_first_time(everything):
    program = Calls()
    x, w = program.input((32, 40), FLOAT32), program.input((40, 8), FLOAT32)
    rows, mean = program.call(normalized, x)
    y = program.call(lambda a, b: prim.dot(a, b, dtype=a.dtype), rows, w)
    for _ in range(12):
        y = program.call(lambda a: prim.cumsum(a, dim=0, reverse=False), y)  # calls that stay apart
    gradient = program.call(lambda a, b: prim.dot(prim.transpose(a, perm=(1, 0)), b, dtype=a.dtype), rows, y)
    again = notes(program.check([gradient, mean]))
    assert not again  # the variance is in no memory
    program = Calls()
    x, w = program.input((32, 40), FLOAT32), program.input((40, 8), FLOAT32)
    rows, mean = program.call(lambda x: centred(x), x)
    y = program.call(lambda a, b: prim.dot(a, b, dtype=a.dtype), rows, w)
    for _ in range(12):
        y = program.call(lambda a: prim.cumsum(a, dim=0, reverse=False), y)
    gradient = program.call(lambda a, b: prim.dot(prim.transpose(a, perm=(1, 0)), b, dtype=a.dtype), rows, y)
    assert notes(program.check([gradient, mean]))


def centred(x):
    """Rows of mean 0, with the means."""
    mean = prim.sum(x, dims=(1,)) / 40.0
    return x - prim.broadcast(mean, shape=x.shape, dims=(0,)), mean


def test_costly_results_and_outputs_are_kept(everything):
    program, wanted = there_and_back(8, activation=lambda v: prim.lgamma(prim.lgamma(v)))
    assert not notes(program.check(wanted))


def test_small_programs_keep_their_memory_in_one_block():
    program, wanted = there_and_back(4)
    made = program.check(wanted)
    assert not notes(made) and len(made.division.ends) == 1 and len(made.division.blocks) == 1


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_phases_never_overlap(everything, seed):
    rand = random.Random(seed)
    waves = rand.randrange(1, 80)
    spans = [sorted((rand.randrange(waves), rand.randrange(waves))) for _ in range(30)]
    buffers = [(rand.randrange(1, 5000), first, last) for first, last in spans]
    results = [(rand.randrange(1, 20000), rand.randrange(waves)) for _ in range(5)]
    found = divided(buffers, results, waves)
    begins = [0, *found.ends]
    assert found.ends[-1] == waves and found.blocks[0][1:] == (0, len(found.ends) - 1)
    for k, (nbytes, first, last) in enumerate(buffers):
        block, offset = found.places[k]
        if block < 0:  # in the memory of a result, before that is written
            size, since = results[-1 - block]
            assert offset + nbytes <= size + 63 and last < since and len(found.ends) == 1
        else:
            size, begin, end = found.blocks[block]
            assert offset + nbytes <= size and begins[begin] <= first and last < found.ends[end]
        for other, (more, since, until) in enumerate(buffers[:k]):
            if found.places[other][0] == block and since <= last and first <= until:
                at = found.places[other][1]
                assert at + more <= offset or offset + nbytes <= at
    for (_, wave), phase in zip(results, found.results, strict=True):
        assert begins[phase] <= wave < found.ends[phase]
    assert found.most <= divided(buffers, results, 1 if waves < 2 else waves).most
