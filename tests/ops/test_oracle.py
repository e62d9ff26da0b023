"""Every public operator beside PyTorch, values and gradients: by PyTorch's own samples, or by ours where its database has none.

An operator that PyTorch lacks is skipped, and the reason says so.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # PyTorch's sample inputs need it

from tests.ops import oracle  # noqa: E402
from tests.ops.test_operators import ENGINE, drawn  # noqa: E402

import rushlight  # noqa: E402
import rushlight._ops.families  # noqa: E402
from rushlight._ops.samples import samples_of  # noqa: E402
from rushlight._ops.table import OPERATORS  # noqa: E402

pytestmark = pytest.mark.oracle

# Where another answer is right as well: the order of equals, roundings that PyTorch itself loses, the gradient of a singular matrix's
# determinant (PyTorch's is 0, ours the cofactors).
ANY_ORDER = {"sort", "argsort", "msort", "median_dim"}
IMPRECISE_THERE = {"logcumsumexp", "det"}
# A scale that wants a gradient is refused there.
VALUES_ALONE = {"fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine", "_weight_int8pack_mm"}
# op_db calls these with the arguments in another order, or through a function of its own.
OTHER_ORDER = {"where", "embedding"}
# Packed weights lie in an order of each library's own; `tests/quantized` compares the products.
OWN_ORDER = {"_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu"}
PUBLIC = {key for key, op in OPERATORS.items() if op.spaces or op.method} - ENGINE
NAMES = sorted(key for key in OPERATORS if oracle.infos(OPERATORS[key]))


@pytest.mark.parametrize("key", [n for n in NAMES if n not in OTHER_ORDER])
def test_values_and_gradients_as_pytorch(key: str) -> None:
    op = OPERATORS[key]
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype is not torch.float32 and key in ANY_ORDER:
            continue
        _, wrong = oracle.check(op, dtype, 3, grad=key not in IMPRECISE_THERE)
        wrong = [
            line
            for line in wrong
            if "ZeroTensor" not in line and "stepping" not in line and "steps between" not in line
        ]
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("key", sorted(PUBLIC - OWN_ORDER - set(NAMES)))
def test_our_own_samples_as_pytorch(key: str) -> None:
    op = OPERATORS[key]
    theirs = oracle.peer(op)
    if theirs is None:
        pytest.skip(f"PyTorch has no {op.public}: the tests without PyTorch hold it")
    rng = np.random.default_rng(7)
    calls = [([drawn(a, rng) for a in c.args], {k: drawn(v, rng) for k, v in c.kwargs.items()}) for c in samples_of(op)]
    wrong = oracle.check_own(op, calls, theirs, grad=key not in IMPRECISE_THERE | VALUES_ALONE)
    assert calls and not wrong, "\n".join(wrong)


def test_most_operators_are_in_the_oracle() -> None:
    assert len(NAMES) > 200


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "bfloat16", "uint8"])
def test_kthvalue_names_the_same_one_of_equals(dtype: str) -> None:
    draw = np.random.default_rng(5)
    for n, high in ((1, 2), (2, 2), (3, 1), (9, 3), (40, 4), (130, 200), (700, 30)):
        rows = draw.integers(0, high, (5, n)).astype("float64")
        if dtype[0] != "u":
            rows *= draw.choice([-1.0, 1.0], rows.shape)
        if "float" in dtype:
            rows[draw.random(rows.shape) < 0.2] = np.nan
        theirs = torch.from_numpy(rows).to(getattr(torch, dtype))
        ours = rushlight.from_numpy(rows).to(getattr(rushlight, dtype))
        for k in {1, 2, n // 8, n // 2, n - 1, n} & set(range(1, n + 1)):
            found, wanted = ours.kthvalue(k), theirs.kthvalue(k)
            assert found.indices.tolist() == wanted.indices.tolist()
            assert np.array_equal(found.values.double().numpy(), wanted.values.double().numpy(), equal_nan=True)
            assert ours.T.kthvalue(k, 0).indices.tolist() == wanted.indices.tolist()


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "bfloat16", "uint8"])
def test_topk_names_the_same_ones_of_equals(dtype: str) -> None:
    draw = np.random.default_rng(6)
    for n, high in ((1, 2), (3, 1), (9, 3), (40, 4), (130, 200), (700, 30), (5000, 40)):
        rows = draw.integers(0, high, (3, n)).astype("float64")
        if dtype[0] != "u":
            rows *= draw.choice([-1.0, 1.0], rows.shape)
        if "float" in dtype:
            rows[draw.random(rows.shape) < 0.01] = np.nan
        theirs = torch.from_numpy(rows).to(getattr(torch, dtype))
        ours = rushlight.from_numpy(rows).to(getattr(rushlight, dtype))
        for k in {1, 2, n // 64, n // 5, n // 2, n} & set(range(1, n + 1)):
            for largest in (True, False):
                for in_order in (True, False):  # without order as well: PyTorch's algorithm leaves one
                    found, wanted = ours.topk(k, 1, largest, in_order), theirs.topk(k, 1, largest, in_order)
                    assert found.indices.tolist() == wanted.indices.tolist()
                    assert np.array_equal(found.values.double().numpy(), wanted.values.double().numpy(), equal_nan=True)
