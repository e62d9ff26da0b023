"""Layouts with numbers that 63 bits cannot hold, or negative ones: refused or cut as in PyTorch 2.13, and never read by native code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.forked import Forked

import rushlight as torch

ROOT = Path(__file__).resolve().parent.parent.parent
ENDED_THE_PROCESS = [
    "torch.ones(1, 1)[-3:1:2**64, torch.tensor([0, 0]), True]",
    "torch.ones(4, 4)[0:4:2**62, torch.tensor([0])] + 1",
    "t = torch.ones(2).set_(torch.ones(32).untyped_storage(), 1, (0, 8), (-2, 1)); t.fill_(3); t + t",
    "t = torch.empty_strided((0, 5), (-1, 2)); t.fill_(1); t + 1; t.to(torch.int64)",
    "x = torch.ones(4); (x[0:4:2**62] + 1).tolist(); x[0:4:2**62].fill_(2)",
    "x = torch.ones(4, 2, dtype=torch.complex64).as_strided((1, 2), (2**62, 1)); x.real",
]


@pytest.mark.parametrize("code", ENDED_THE_PROCESS)
def test_programs_that_ended_the_process_do_no_longer(code: str, tmp_path: Path, forked: Forked) -> None:
    program = f"import rushlight as torch\ntry:\n    {code}\nexcept (RuntimeError, IndexError, ValueError) as error:\n    print(type(error).__name__)\nprint('whole')"
    script = tmp_path / "program.py"
    script.write_text(program)
    done = forked.run(script, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("whole\n"), done.stderr


def x44() -> torch.Tensor:
    return torch.ones(4, 4)


# (call, strides) with strides cut to 64 bits as PyTorch's arithmetic does
CUT = [
    (lambda: torch.ones(4)[0:4:2**62], (1,), (2**62,), 0),
    (lambda: torch.ones(4)[0:4:2**64], (1,), (2**63 - 1,), 0),
    (lambda: x44()[2**62 : 2**62 : 2**62], (0, 4), (0, 1), 16),
    (lambda: x44().unfold(0, 1, 2**62), (1, 4, 1), (0, 1, 4), 0),
    (lambda: x44().as_strided((1, 1), (2**62, 1)).view(torch.int8), (1, 4), (0, 1), 0),
    (lambda: torch.ones(4, 0).view(0, 2**62, 4), (0, 2**62, 4), (0, 4, 1), 0),
    (lambda: x44().as_strided((1, 4), (2**62, 1)).diagonal(), (1,), (2**62 + 1,), 0),
    (lambda: torch.empty_strided((0, 5), (-1, 2)), (0, 5), (10, 2), 0),
    (lambda: torch.empty_strided((1, 5), (-1, 2)), (1, 5), (10, 2), 0),
    (lambda: torch.ones(2).set_(torch.ones(9).untyped_storage(), 1, (0, 8), (-2, 1)), (0, 8), (8, 1), 1),
    (lambda: torch.ones(2).set_(torch.ones(9).untyped_storage(), 1, (1, 8), (-2, 1)), (1, 8), (8, 1), 1),
    (lambda: torch.triu_indices(2**61 - 1, 2), (2, 3), (3, 1), 0),
    (lambda: torch.ones(1).expand(2**61, 2)[2**60 :, 1], (2**60,), (0,), 0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CUT)))
def test_layouts_are_those_of_pytorch(number: int) -> None:
    made, shape, strides, offset = CUT[number]
    found = made()
    assert (tuple(found.shape), found.stride(), found.storage_offset()) == (shape, strides, offset)


UNPACK = "Overflow when unpacking long long"
REFUSED = [
    (lambda: torch.ones(4, 2)[0 : 4 : 2**63], RuntimeError, r"Negative strides are not supported at the moment, got strides: \[-2, 1\]"),
    (lambda: x44()[2**63], ValueError, UNPACK),
    (lambda: x44().as_strided((1, 1), (2**63, 1)), TypeError, r"as_strided\(\): argument 'stride' failed to unpack the object at pos 1 with error \"" + UNPACK),
    (lambda: x44().as_strided((1, 1), (1, 1), 2**63), ValueError, UNPACK),
    (lambda: x44().as_strided((0, 1), (-1, 1)), RuntimeError, r"Negative strides are not supported at the moment, got strides: \[-1, 1\]"),
    (lambda: x44().as_strided((2, 1), (2**62, 1)), RuntimeError, r"Storage size calculation overflowed with sizes=\[2, 1\] and strides=\[4611686018427387904, 1\]"),
    (lambda: x44().as_strided((1, 1), (1, 1), -1), RuntimeError, "Tensor: invalid storage offset -1"),
    (lambda: x44().as_strided((-1, 1), (1, 1)), RuntimeError, r"Storage size calculation overflowed with sizes=\[-1, 1\]"),
    (lambda: torch.empty_strided((2, 5), (2**62, 2)), RuntimeError, r"Storage size calculation overflowed with sizes=\[2, 5\] and strides=\[4611686018427387904, 2\]"),
    (lambda: torch.empty_strided((2, 5), (-1, 2)), RuntimeError, "Storage size calculation overflowed"),
    (lambda: torch.empty_strided((1,), (2**63,)), TypeError, UNPACK),
    (lambda: torch.empty(0, 2**62, 4), RuntimeError, "Stride calculation overflowed"),
    (lambda: torch.ones(1).expand(2**62, 4), RuntimeError, "numel: integer multiplication overflow"),
    (lambda: torch.ones(1).expand(2**63), TypeError, r"expand\(\): argument 'size' failed to unpack the object at pos 1"),
    (lambda: torch.ones(1).view(1, 2**63), TypeError, r"view\(\): argument 'size' failed to unpack the object at pos 2"),
    (lambda: torch.ones(1).expand(2**61).unfold(0, 2**60, 1), RuntimeError, "numel: integer multiplication overflow"),
    (lambda: torch.empty(2**62), RuntimeError, r"Storage size calculation overflowed with sizes=\[4611686018427387904\]"),
    (lambda: torch.ones(2, 2).resize_(2**62), RuntimeError, r"Storage size calculation overflowed with sizes=\[4611686018427387904\]"),
    (lambda: torch.ones(2, 2).resize_(2**60, 2**60), RuntimeError, "Storage size calculation overflowed"),
    (lambda: torch.ones(2).set_(torch.ones(8).untyped_storage(), 0, (2, 2), (1, -5)), RuntimeError, "Storage size calculation overflowed"),
    (lambda: torch.ones(2).set_(torch.ones(8).untyped_storage(), 2**62, (1, 1), (1, 1)), RuntimeError, "Storage size calculation overflowed"),
    (lambda: torch.ones(2).set_(torch.ones(8).untyped_storage(), -1, (1,)), RuntimeError, "Tensor: invalid storage offset -1"),
    (lambda: torch.UntypedStorage(2**63), ValueError, UNPACK),
    (lambda: torch.UntypedStorage(-1), RuntimeError, "-1 bytes"),
    (lambda: torch.FloatStorage(2**62), ValueError, UNPACK),
    (lambda: torch.ones(2).untyped_storage().resize_(2**63), ValueError, UNPACK),
    (lambda: torch.ones(2).untyped_storage()[8], IndexError, "index 8 out of range for storage of size 8"),
    (lambda: torch.empty(0, 2**62).unbind(1), RuntimeError, "4611686018427387904 parts"),
    (lambda: torch.tril_indices(2**31, 2**31), RuntimeError, "Storage size calculation overflowed"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_layouts_that_pytorch_refuses(number: int) -> None:
    call, error, words = REFUSED[number]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("rows", range(5))
def test_places_of_triangles_are_numpys(rows: int) -> None:
    import numpy as np

    for columns in range(4):
        for offset in range(-6, 6):
            assert torch.tril_indices(rows, columns, offset).tolist() == [
                list(map(int, p)) for p in np.tril_indices(rows, offset, columns)
            ]
            assert torch.triu_indices(rows, columns, offset).tolist() == [
                list(map(int, p)) for p in np.triu_indices(rows, offset, columns)
            ]


def test_native_descriptions_refuse_what_is_no_layout() -> None:
    from rushlight._engine.dispatch.plans.native_plans import ready
    from rushlight._types.device import CPU
    from rushlight._types.dtype import FLOAT32
    from rushlight._types.spec import Spec

    spec = Spec.of(FLOAT32, CPU, (2, 3), (7, 2))
    spec.strides = (-7, 2)  # no program can make one
    try:
        with pytest.raises(ValueError, match="negative or takes more than 63 bits"):
            ready().describe((spec, spec), ())
    finally:
        spec.strides = (7, 2)


def test_sample_of_the_sweep() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "sweeps" / "fuzz_layouts.py"), "--count", "60", "--start", "7000000", "--debug-malloc"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("60 programs")


def test_strides_that_bytes_cannot_count_are_not_walked() -> None:
    x = torch.ones(2, 4).as_strided((1, 4), (2**62, 1))
    assert x.tolist() == [[1.0] * 4] and x.numpy().tolist() == [[1.0] * 4] and (x + 1).tolist() == [[2.0] * 4]
    assert torch.empty(0).as_strided((2, 0), (2**62, 1)).tolist() == [[], []]


def test_masks_without_memory_are_refused() -> None:
    x = torch.ones(4, dtype=torch.bool)
    x.untyped_storage().resize_(0)
    for call in (x.nonzero, lambda: torch.ones(4)[x], lambda: torch.ones(4).masked_select(x)):
        with pytest.raises(RuntimeError, match="its data is not allocated"):
            call()


@pytest.mark.parametrize("layout", [((0,), (0,)), ((0, 1), (0, 0)), ((0, 2), (0, 0)), ((0, 2), (0, 1))])
def test_nothing_is_read_from_a_dim_without_places(layout: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """A kernel reads at once what all indices share: where there is no memory that ended the process."""
    program = f"""
import rushlight as torch
x, i, F = torch.empty_strided{layout}, torch.tensor([0, 0]), torch.nn.functional
calls = [
    lambda: x[i], lambda: x[i, None], lambda: x.index_select(0, i), lambda: F.embedding(i, x), lambda: x.gather(0, torch.zeros((2,) * x.ndim, dtype=torch.int64)),
    lambda: F.nll_loss(x.t(), torch.zeros(x.shape[-1], dtype=torch.int64)), lambda: F.cross_entropy(x.t(), torch.zeros(x.shape[-1], dtype=torch.int64)),
]
for call in calls:
    try:
        call()
    except (RuntimeError, IndexError, ValueError):
        continue
print("whole")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "whole\n", done.stderr


def test_indices_into_a_dim_without_places() -> None:
    i = torch.tensor([0])
    for call in (
        lambda: torch.empty(0)[i],
        lambda: torch.empty(0, 3)[i],
        lambda: torch.empty_strided((0,), (0,))[i, None],
    ):
        with pytest.raises(IndexError, match="index is out of bounds for dimension with size 0"):
            call()
    assert (
        torch.empty(3, 0)[i].shape == (1, 0)
        and torch.empty(0, 3)[:, i].shape == (0, 1)
        and torch.empty(0, 3)[i[:0]].shape == (0, 3)
    )
