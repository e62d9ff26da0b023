"""Time of each step of a linked program, and what the machine could do at best."""

import pytest
from tests.kernels.call_programs import Calls

from rushlight._backends.cpu.program.measuring import measured, operations_of, table_of
from rushlight._backends.cpu.program.peak import Peak
from rushlight._backends.cpu.runtime.program_native import LINKED
from rushlight._prims.effects import prim
from rushlight._types.dtype import FLOAT32

PEAK = Peak({"float32": 1e11}, {1 << 20: 1e10})


def made_of_three():
    program = Calls()
    a, b = program.input((64, 32), FLOAT32), program.input((32, 48), FLOAT32)
    product = program.call(lambda a, b: prim.dot(a, b, dtype=a.dtype), a, b)
    rows = program.call(lambda x: prim.sum(x, dims=(1,)), product)
    made = program.check([product, rows])
    return made, [a.storage.ptr, b.storage.ptr]


@pytest.mark.parametrize("own", [False, True])
def test_every_step_has_its_time_and_its_least(own):
    made, words = made_of_three()
    times = measured(made, lambda: made(*words), 0.01, PEAK, own)
    assert [t.name for t in times] == [step.name for step in made.steps()]
    assert all(0 <= t.seconds < 5 and t.least > 0 for t in times)
    assert made.head[LINKED.times.place] == 0  # later calls are not measured
    product = next(t for t in times if t.name == "dot")
    assert product.operations == 2 * 64 * 32 * 48 and product.moved == 4 * (64 * 32 + 32 * 48 + 64 * 48)
    assert "times the machine's limit" in table_of(times) and "dot" in table_of(times, 1) + table_of(times)


def test_a_call_that_fails_is_not_measured_any_longer():
    made, _ = made_of_three()

    def fails():
        if made.head[LINKED.times.place]:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        measured(made, fails, 0.01, PEAK)
    assert made.head[LINKED.times.place] == 0


def test_arithmetic_or_memory_limits():
    assert PEAK.seconds(1e11, 0) == 1.0 and PEAK.seconds(0, 1e10) == 1.0
    assert PEAK.seconds(2e11, 1e10, "bfloat16") == 2.0  # dtypes that are not known are as fast as float32


def test_operations_of_convolutions_and_attention():
    class Step:
        def __init__(self, name, inputs, outputs, **params):
            self.name, self.params = name, params
            self.inputs, self.outputs = [self.of(s) for s in inputs], [self.of(s) for s in outputs]

        @staticmethod
        def of(shape):
            return type("Operand", (), {"shape": shape, "dtype": FLOAT32})()

    conv = Step("conv_windows", [(4, 1, 3, 8, 8), (1, 16, 3, 3, 3)], [(4, 1, 16, 6, 6)])
    assert operations_of(conv) == (2 * 4 * 16 * 36 * 27, "float32")
    rows = (2, 3, 8, 4)
    attention = Step("attention", [rows, rows, rows], [rows, (2, 3, 8)], causal=False)
    assert operations_of(attention)[0] == 2 * (2 * 3 * 8) * 8 * 8
    causal = Step("attention_grad", [rows, rows, rows, rows], [rows] * 3, causal=True)
    assert operations_of(causal)[0] == (2 * 3 * 8) * 8 * 20
