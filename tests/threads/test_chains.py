"""Attention by warpgroups: numbers against float64, registers against the figures of NVIDIA's instruction set, faults put in on
purpose, what becomes of loops that do not qualify.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from bench.cuda_kernels import bf16, wide
from tests.threads.test_warpgroups import COLUMNS, element_address, run_left_from_registers
from tests.threads.twins import TwinError, run_thread_kernel

from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.attention.attention import attention_steps, gradient_steps
from rushlight._backends.cuda.attention.scores import AttentionForm
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._codegen.threads import ThreadKernel, lower, nvptx_text
from rushlight._codegen.threads.form import Body, Instruction, Value
from rushlight._codegen.threads.warpgroups import find_chains
from rushlight._native.nvidia.nvptx import ptx_of
from rushlight._native.nvidia.ptxas import assemble, disassemble, find_tool
from rushlight._types.dtype import BFLOAT16, FLOAT32


@pytest.fixture(autouse=True)
def by_warpgroups() -> Iterator[None]:
    with PRODUCTS.scoped("wgmma"):
        yield


class Call:
    """Attention of one shape: arrays [*B, rows, width] of bfloat16, as they lie in memory in `order`, and the launch."""

    def __init__(
        self, rows: int, keys: int, width: int, depth: int, form: AttentionForm, lead: tuple[int, ...] = (1,),
        order: tuple[int, ...] | None = None, shared: bool = False,
    ) -> None:  # fmt: skip
        random, self.form = np.random.default_rng(rows + keys), form
        shapes = [(*lead, n, w) for n, w in ((rows, width), (keys, width), (keys, depth))]
        if shared:  # one head of keys for all of queries
            shapes[1:] = [(*lead[:-1], 1, *shape[-2:]) for shape in shapes[1:]]
        order = order or tuple(range(len(lead) + 2))
        laid = [bf16(random.standard_normal([shape[d] for d in order])) for shape in shapes]
        back = [order.index(d) for d in range(len(order))]
        self.inputs = [wide(x).astype(np.float64).transpose(back) for x in laid]
        self.out, self.norm = np.zeros((*lead, rows, depth), np.uint16), np.zeros((*lead, rows), np.float32)
        self.arrays = [*laid, self.out, self.norm]
        memories = [Memory(x.nbytes, f"x{n}") for n, x in enumerate(self.arrays)]
        operands = []
        for memory, shape, x in zip(memories, shapes, laid, strict=False):
            steps = dict(zip(order, [s // 2 for s in x.strides], strict=True))
            strides = [0 if n == 1 and d == len(lead) - 1 and shared else steps[d] for d, n in enumerate(shape)]
            operands.append(Operand(memory, BFLOAT16, (*lead, *shape[-2:]), strides))
        out, norm = (
            Operand(memory, dtype, x.shape, [s // x.itemsize for s in x.strides])
            for memory, dtype, x in zip(memories[3:], (BFLOAT16, FLOAT32), (self.out, self.norm), strict=True)
        )
        (step,) = attention_steps(form, operands, [out, norm])
        assert isinstance(step, Launch)
        self.launch, self.places = step, dict(zip(memories, self.arrays, strict=True))

    def given(self, launch: Launch) -> list[Any]:
        return [self.places[a.memory] if isinstance(a, Operand) else a for a in launch.arguments]

    def run(self, made: ThreadKernel | None = None) -> None:
        given = self.given(self.launch)
        types = [p.type.element for p in self.launch.kernel.params]
        run_thread_kernel(made or lower(self.launch.kernel, "sm_90a"), self.launch.grid, given, types)

    def expected(self) -> tuple[Any, Any]:
        q, k, v = self.inputs
        scores = (
            np.einsum("...id,...jd->...ij", q, np.broadcast_to(k, (*q.shape[:-2], *k.shape[-2:]))) * self.form.scale
        )
        if self.form.score is not None:
            scores = np.tanh(scores / 2) * 2
        i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
        left, right = self.form.bounds()
        inside = (j >= i - left if left is not None else True) & (j <= i + right if right is not None else j >= 0)
        scores = np.where(inside, scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        weights = np.exp(scores - top)
        return weights @ v / weights.sum(-1, keepdims=True), np.log(weights.sum(-1)) + top[..., 0]

    def check(self) -> None:
        out, norm = self.expected()
        np.testing.assert_allclose(wide(self.out), out, rtol=2e-2, atol=1e-2)
        np.testing.assert_allclose(self.norm, norm, rtol=1e-5, atol=1e-5)


def softcap(b: Any, scores: Any, at: Any, rows: Any, columns: Any) -> Any:
    return b.apply("tanh", scores * 0.5) * 2.0


CALLS: dict[str, Callable[[], Call]] = {
    "one head of keys, edges": lambda: Call(
        72, 72, 64, 64, AttentionForm(0.125, causal=True), (1, 2), (0, 2, 1, 3), shared=True
    ),
    "narrow, changed scores": lambda: Call(64, 128, 80, 40, AttentionForm(0.1, score=softcap), (2, 1), (0, 2, 1, 3)),
    "a factor below zero": lambda: Call(64, 128, 64, 64, AttentionForm(-0.125)),
    "several tiles": lambda: Call(200, 200, 64, 64, AttentionForm(0.125, causal=True), (2,)),
    "a window": lambda: Call(300, 300, 64, 64, AttentionForm(0.125, window=(70, 20))),
    "deep": lambda: Call(128, 128, 64, 128, AttentionForm(0.125)),
    "wide heads": lambda: Call(128, 192, 256, 256, AttentionForm(0.0625, causal=True)),
}
_OFTEN = 3  # of them each time


@pytest.mark.parametrize(
    "name", [n if k < _OFTEN else pytest.param(n, marks=pytest.mark.slow) for k, n in enumerate(CALLS)]
)
def test_numbers(name: str) -> None:
    call = CALLS[name]()
    made = lower(call.launch.kernel, "sm_90a")
    assert {"wgmma", "tile_copy", "roles"} <= {i.kind for i in made.body.walk()}
    assert "mma" not in {i.kind for i in made.body.walk()}
    call.run(made)
    call.check()


def test_turns_that_overlap_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a ring with more slots: neither the order of copies nor that of products between turns makes a difference."""
    one, other, third = (Call(64, 512, 64, 64, AttentionForm(0.125)) for _ in range(3))
    one.run()
    third.launch.kernel.stages = 3
    third.run()
    monkeypatch.setattr(find_chains, "_MOST_REGISTERS", 0)
    made = lower(other.launch.kernel, "sm_90a")
    assert not [i for i in made.body.walk() if i.kind == "wgmma_wait" and i.attributes["pending"]]
    other.run(made)
    for x in (other, third):
        np.testing.assert_array_equal(x.out, one.out)
        np.testing.assert_array_equal(x.norm, one.norm)


def test_a_warpgroup_of_more_rows() -> None:
    """Two instructions beside each other, with left operands of their own; such a loop holds too many registers to overlap."""
    call = Call(128, 256, 64, 64, AttentionForm(0.125))
    call.launch.kernel.warps = 4
    made = lower(call.launch.kernel, "sm_90a")
    assert not [i for i in made.body.walk() if i.kind == "wgmma_wait" and i.attributes["pending"]]
    call.run(made)
    call.check()


# ***** derivatives *****


class Back:
    """The derivatives of attention over dense arrays [heads, rows, width], and both launches."""

    def __init__(self, rows: int, keys: int, width: int, causal: bool) -> None:
        random, self.causal, self.scale = np.random.default_rng(rows), causal, width**-0.5
        laid = [bf16(random.standard_normal((2, n, width))) for n in (rows, rows, keys, keys)]
        ct, _, _, v = self.inputs = [wide(x).astype(np.float64) for x in laid]
        scores = self.scores()
        top = scores.max(-1, keepdims=True)
        sums = np.exp(scores - top).sum(-1, keepdims=True)
        self.weights = np.exp(scores - top) / sums
        delta = (ct * (self.weights @ v)).sum(-1)
        numbers = [(np.log(sums) + top)[..., 0].astype(np.float32), delta.astype(np.float32)]
        self.outs = [np.zeros((2, n, width), np.uint16) for n in (rows, keys, keys)]
        self.arrays = [*laid, *numbers, *self.outs]
        memories = [Memory(x.nbytes, f"x{n}") for n, x in enumerate(self.arrays)]
        operands = [
            dense_operand(m, FLOAT32 if x.dtype == np.float32 else BFLOAT16, x.shape)
            for m, x in zip(memories, self.arrays, strict=True)
        ]
        self.places = dict(zip(memories, self.arrays, strict=True))
        steps = gradient_steps(AttentionForm(self.scale, causal=causal), operands[:6], operands[6:])
        self.steps = [step for step in steps if isinstance(step, Launch)]

    def scores(self) -> Any:
        _, q, k, _ = self.inputs
        scores = q @ k.transpose(0, 2, 1) * self.scale
        inside = np.tri(*scores.shape[1:]) if self.causal else np.ones(scores.shape[1:])
        return np.where(inside > 0, scores, -np.inf)

    def given(self, launch: Launch) -> list[Any]:
        return [self.places[a.memory] if isinstance(a, Operand) else a for a in launch.arguments]

    def run(self, which: int) -> None:
        step = self.steps[which]
        made = lower(step.kernel, "sm_90a")
        assert "wgmma" in {i.kind for i in made.body.walk()} and "mma" not in {i.kind for i in made.body.walk()}
        run_thread_kernel(made, step.grid, self.given(step), [p.type.element for p in step.kernel.params])

    def expected(self) -> list[Any]:
        ct, q, k, v = self.inputs
        share = ct @ v.transpose(0, 2, 1)
        slopes = self.weights * (share - (self.weights * share).sum(-1, keepdims=True)) * self.scale
        return [slopes @ k, slopes.transpose(0, 2, 1) @ q, self.weights.transpose(0, 2, 1) @ ct]


@pytest.mark.parametrize(
    ("rows", "keys", "width", "causal"),
    [(136, 328, 64, False), pytest.param(264, 300, 128, True, marks=pytest.mark.slow)],
)
def test_derivatives(rows: int, keys: int, width: int, causal: bool) -> None:
    back = Back(rows, keys, width, causal)
    for which in (0, 1):
        back.run(which)
    for found, expected in zip(back.outs, back.expected(), strict=True):
        np.testing.assert_allclose(wide(found), expected, rtol=2e-2, atol=2e-2)


# ***** registers *****


def test_left_operand_in_registers_is_that_of_the_instruction_set() -> None:
    """Figure 148: thread t of a warp has rows t / 4 and t / 4 + 8, columns 2 (t % 4) and the next, and those 8 on."""
    random = np.random.default_rng(3)
    a, b = random.integers(-8, 9, (64, 16)).astype(np.float16), random.integers(-8, 9, (64, COLUMNS)).astype(np.float16)
    registers = np.zeros((128, 8), np.float16)
    for thread in range(128):
        row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
        for n in range(8):
            registers[thread, n] = a[row + n // 2 % 2 * 8, column + n % 2 + n // 4 * 8]
    out, descriptor, image = run_left_from_registers(registers, b)
    places = [[element_address(descriptor, False, 2, o, k) for k in range(16)] for o in range(COLUMNS)]
    right = image.view(np.float16)[np.array(places) // 2].astype(np.float64)
    np.testing.assert_array_equal(right, b[:16].T)
    np.testing.assert_array_equal(out, a.astype(np.float64) @ right.T)


def test_registers_of_open_products_are_left_alone() -> None:
    """Between a product and the wait for it, its accumulators and its left operand are read by products alone."""
    for name in ("one head of keys, edges", "narrow, changed scores"):
        made = lower(CALLS[name]().launch.kernel, "sm_90a")
        uses: dict[Value, list[Instruction]] = {}
        for i in made.body.walk():
            for x in i.operands:
                uses.setdefault(x, []).append(i)
        checked = 0
        open_values = [i.result for i in made.body.walk() if i.kind == "wgmma"]
        while open_values:
            value = open_values.pop()
            for use in uses[value]:
                assert use.kind in ("wgmma", "pick", "wgmma_wait")
                checked += 1
                if use.kind == "pick":
                    open_values += use.results
        assert checked


@pytest.mark.slow
def test_the_assembler_waits_for_no_product_before_exponentials() -> None:
    """In machine code, too, exponentials of a turn stand between the wait for scores and that for the product with values."""
    if find_tool("ptxas") is None or find_tool("nvdisasm") is None:
        pytest.skip("ptxas and nvdisasm are not installed: pip install rushlight[ptxas]")
    made = lower(Call(128, 1024, 128, 128, AttentionForm(0.1)).launch.kernel, "sm_90a")
    text = disassemble(assemble(ptx_of(nvptx_text(made), "sm_90a"), "sm_90a").cubin)
    order = [m[0] for m in re.finditer(r"HGMMA|MUFU\.EX2|DEPBAR\.LE gsb0, 0x[01]", text)]
    turn = order[order.index("DEPBAR.LE gsb0, 0x1") :]
    assert turn.index("DEPBAR.LE gsb0, 0x0") > 64 and set(turn[1:65]) == {"MUFU.EX2"}
    before = order[: order.index("DEPBAR.LE gsb0, 0x1")]
    assert before[-16:] == ["HGMMA"] * 16


# ***** faults *****


def multiplying(made: ThreadKernel) -> Body:
    (roles,) = (i for i in made.body.walk() if i.kind == "roles")
    return roles.bodies[1]


def bodies(body: Body) -> Iterator[Body]:
    yield body
    for i in body.instructions:
        for inner in i.bodies:
            yield from bodies(inner)


def turn(made: ThreadKernel) -> Body:
    """The turn of a loop that overlaps."""
    return next(
        b
        for b in bodies(multiplying(made))
        if any(i.kind == "wgmma_wait" and i.attributes["pending"] for i in b.instructions)
    )


def _no_wait_for_what_stays(made: ThreadKernel) -> None:
    body = multiplying(made)
    body.instructions.remove(next(i for i in body.instructions if i.kind == "mbarrier_wait"))


def _no_wait_for_values(made: ThreadKernel) -> None:
    body = turn(made)
    body.instructions.remove(next(i for i in body.instructions if i.kind == "mbarrier_wait"))


def _values_free_too_early(made: ThreadKernel) -> None:
    [i for i in turn(made).instructions if i.kind == "wgmma_wait"][-1].attributes["pending"] = 1


def _never_free(made: ThreadKernel) -> None:
    body = turn(made)
    body.instructions.remove([i for i in body.instructions if i.kind == "mbarrier_arrive"][-1])


def _too_few_bytes(made: ThreadKernel) -> None:
    [i for i in made.body.walk() if i.kind == "mbarrier_expect"][-1].attributes["bytes"] += 128


FAULTS = [
    (_no_wait_for_what_stays, "products read byte .* no copy into it was waited for"),
    (_no_wait_for_values, "products read byte .* no copy into it was waited for"),
    (_values_free_too_early, "a copy into byte .* starts while another or products may use it"),
    (_never_free, "waits for a phase of a barrier that nothing completes"),
    (_too_few_bytes, "waits for a phase .* 128 bytes are missing"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_faults_are_reported(fault: Callable[[ThreadKernel], None], message: str) -> None:
    call = Call(64, 768, 64, 64, AttentionForm(0.125))
    made = lower(call.launch.kernel, "sm_90a")
    fault(made)
    with pytest.raises(TwinError, match=message):
        call.run(made)


# ***** what qualifies *****


def test_what_warpgroups_cannot_do_goes_to_mma() -> None:
    kinds = lambda call, architecture="sm_90a": {i.kind for i in lower(call.launch.kernel, architecture).body.walk()}
    call = Call(128, 128, 64, 64, AttentionForm(0.125))
    for architecture in ("sm_80", "sm_90", "sm_100a"):
        assert not {"wgmma", "tile_copy"} & kinds(call, architecture)
    call.launch.kernel.divisible.clear()  # addresses of which nothing is known
    assert "mma" in kinds(call) and "wgmma" not in kinds(call)
    for few in (Call(40, 128, 64, 64, AttentionForm(0.125)), Call(128, 128, 24, 24, AttentionForm(0.125))):
        assert not any(op.kind == "load_tile" for op in few.launch.kernel.body.walk())
    with PRODUCTS.scoped("mma"):
        usual = Call(128, 128, 64, 64, AttentionForm(0.125))
    assert not any(op.kind == "load_tile" for op in usual.launch.kernel.body.walk())
