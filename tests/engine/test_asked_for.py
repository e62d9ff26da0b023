"""`grad` and `backward(inputs=)` on random graphs: the gradients that `retain_grad` gives, and only the nodes that lead there run."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import rushlight


class Step:
    """One node of a graph: what it was computed from, the tensors that it gave, and what it saved of its own result or of its operands."""

    def __init__(self, parents: list[Step], outputs: list[Any], saved: str = "") -> None:
        self.parents, self.outputs, self.saved = parents, outputs, saved


class Program:
    """A random graph of products, sums, powers, views, in-place changes and nodes of several results."""

    def __init__(self, t: Any, seed: int) -> None:
        self.steps: list[Step] = []
        self.owner: dict[int, Step] = {}
        self.alive: list[Any] = []
        rng, values = random.Random(seed), np.random.default_rng(seed)
        for _ in range(rng.randint(1, 3)):
            self.add([], t.from_numpy(values.uniform(0.5, 1.5, (2, 3))).requires_grad_())
        for _ in range(rng.randint(3, 9)):
            getattr(self, rng.choice(("product", "total", "power", "parts", "views", "changed")))(
                t, rng.choice(self.alive), rng.choice(self.alive)
            )
        self.out = self.alive[-1]
        for other in self.alive[:-1]:
            if rng.random() < 0.3:
                self.out = self.add([self.out, other], self.out + other)

    def add(self, parents: list[Any], *outputs: Any, saved: str = "", hidden: int = 0) -> Any:
        """Note the node of `outputs`, behind so many nodes of one operand whose results nobody holds."""
        before = [self.owner[id(p)] for p in parents]
        for _ in range(hidden):
            self.steps.append(Step(before, []))
            before = [self.steps[-1]]
        self.steps.append(Step(before, list(outputs), saved))
        for out in outputs:
            self.owner[id(out)] = self.steps[-1]
            self.alive.append(out)
        return outputs[0]

    def product(self, t: Any, a: Any, b: Any) -> None:
        self.add([a, b], a * b, saved="_saved_other")

    def total(self, t: Any, a: Any, b: Any) -> None:
        self.add([a, b], a + b)

    def power(self, t: Any, a: Any, b: Any) -> None:
        self.add([a], a.exp(), saved="_saved_result")

    def parts(self, t: Any, a: Any, b: Any) -> None:
        first, second = (a * 1.0).unbind(0)
        self.add([a], first, second, hidden=1)
        del self.alive[-2:]
        self.add([second, first], t.stack([second, first]))

    def views(self, t: Any, a: Any, b: Any) -> None:
        self.add([a], a.view(3, 2).sin().view(2, 3), hidden=2)

    def changed(self, t: Any, a: Any, b: Any) -> None:
        made = a * 2.0
        self.steps.append(Step([self.owner[id(a)]], []))
        made.mul_(b)
        self.steps.append(Step([self.steps[-1], self.owner[id(b)]], [made], "_saved_other"))
        self.owner[id(made)] = self.steps[-1]
        self.alive.append(made)


def behind(step: Step, found: set[int]) -> set[int]:
    """The steps from which `step` was computed, and itself."""
    if id(step) not in found:
        found.add(id(step))
        for parent in step.parents:
            behind(parent, found)
    return found


def asked(t: Any, seed: int, how: str) -> None:
    """One random graph, once by `retain_grad` and once by asking for some of its tensors."""
    truth, program = Program(t, seed), Program(t, seed)
    rng = random.Random(-seed)
    pool = [(i, k) for i, s in enumerate(program.steps) for k in range(len(s.outputs))]
    chosen = rng.sample(pool, min(len(pool), rng.randint(1, 3)))
    truths = [truth.steps[i].outputs[k] for i, k in chosen]
    for x in truths:
        x.retain_grad()
    truth.out.backward(t.ones_like(truth.out))
    counts: Counter[tuple[int, int]] = Counter()
    for place in pool:
        program.steps[place[0]].outputs[place[1]].register_hook(lambda g, place=place: counts.update([place]))
    wanted = [program.steps[i].outputs[k] for i, k in chosen]
    found: Any
    if how == "grad":
        found = t.autograd.grad(program.out, wanted, t.ones_like(program.out), allow_unused=True)
    else:
        program.out.backward(t.ones_like(program.out), inputs=wanted)
        found = [w.grad for w in wanted]
    for mine, other in zip(found, truths, strict=True):
        assert (mine is None) == (other.grad is None)
        if mine is not None:
            np.testing.assert_allclose(mine.numpy(), other.grad.numpy(), rtol=1e-12)
    check_what_ran(program, {id(program.steps[i]) for i, _ in chosen}, how, counts)


def check_what_ran(program: Program, targets: set[int], how: str, counts: Counter[tuple[int, int]]) -> None:
    """Nodes ran that lead to others that were asked for; they are freed, and only they; hooks ran where a gradient arrived."""
    reached = behind(program.owner[id(program.out)], set())
    for i, step in enumerate(program.steps):
        below = set().union(*[behind(p, set()) for p in step.parents])
        asked_for = id(step) in targets
        runs = id(step) in reached and bool(below & targets or how == "backward" and asked_for)
        for k, x in enumerate(step.outputs):
            assert counts[i, k] == (id(step) in reached and (runs or asked_for or x is program.out)), (i, k)
            if step.saved and runs:
                with pytest.raises(RuntimeError, match="second time"):
                    getattr(x.grad_fn, step.saved)
            elif step.saved:
                getattr(x.grad_fn, step.saved)


@pytest.mark.parametrize("how", ["grad", "backward"])
@pytest.mark.parametrize("block", range(4))
def test_only_what_is_needed_runs(block: int, how: str) -> None:
    for seed in range(30 * block, 30 * block + 30):
        asked(rushlight, seed, how)


@pytest.mark.oracle
@pytest.mark.parametrize("how", ["grad", "backward"])
def test_the_rule_is_pytorchs(how: str) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(120):
        asked(torch, seed, how)
