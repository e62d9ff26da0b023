"""Complex functions where parts are infinite, NaN, huge or signed zeros: the rules of C99's Annex G."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rushlight

inf, nan = math.inf, math.nan

# (function, argument, result); a result whose sign C leaves open is not listed.
RULES: list[tuple[str, complex, complex]] = [
    ("exp", complex(1000, nan), complex(nan, nan)), ("exp", complex(-1000, inf), complex(nan, nan)), ("exp", complex(1, inf), complex(nan, nan)),
    ("exp", complex(inf, 0.0), complex(inf, 0.0)), ("exp", complex(inf, -0.0), complex(inf, -0.0)), ("exp", complex(inf, inf), complex(inf, nan)),
    ("exp", complex(inf, nan), complex(inf, nan)), ("exp", complex(-inf, inf), complex(0, 0)), ("exp", complex(-inf, nan), complex(0, 0)),
    ("exp", complex(nan, 0.0), complex(nan, 0.0)), ("exp", complex(inf, 3.0), complex(-inf, inf)), ("exp", complex(-inf, 3.0), complex(-0.0, 0.0)),
    ("exp2", complex(1e30, nan), complex(nan, nan)), ("exp2", complex(-1e30, inf), complex(nan, nan)),
    ("expm1", complex(1000, nan), complex(nan, nan)), ("expm1", complex(inf, 0.0), complex(inf, 0.0)), ("expm1", complex(-inf, 1.0), complex(-1, 0.0)),
    ("tanh", complex(30, nan), complex(nan, nan)), ("tanh", complex(-1000, inf), complex(nan, nan)), ("tanh", complex(inf, 2.0), complex(1, -0.0)),
    ("tanh", complex(inf, 1.0), complex(1, 0.0)), ("tanh", complex(-inf, 1.0), complex(-1, 0.0)), ("tanh", complex(nan, 0.0), complex(nan, 0.0)),
    ("tan", complex(nan, 30), complex(nan, nan)), ("tan", complex(inf, -1000), complex(nan, nan)), ("tan", complex(2.0, inf), complex(-0.0, 1)),
    ("sinh", complex(inf, 0.0), complex(inf, 0.0)), ("sinh", complex(1, inf), complex(nan, nan)), ("cosh", complex(1, nan), complex(nan, nan)),
    ("cosh", complex(inf, nan), complex(inf, nan)), ("sin", complex(nan, 1), complex(nan, nan)), ("sigmoid", complex(1000, nan), complex(nan, nan)),
    ("reciprocal", complex(0, 0), complex(inf, nan)), ("reciprocal", complex(nan, 0), complex(nan, nan)),
]  # fmt: skip


def parts(z: complex) -> list[str]:
    return ["nan" if math.isnan(p) else repr(p) for p in (z.real, z.imag)]


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
def test_rules_of_the_standard_hold_in_vectors_and_alone(dtype: Any) -> None:
    wrong = []
    for name in dict.fromkeys(name for name, _, _ in RULES):
        rules = [(z, wanted) for other, z, wanted in RULES if other == name]
        with np.errstate(over="ignore"):
            given = np.array([z for z, _ in rules] * 9).astype(dtype)
        found = getattr(rushlight, name)(rushlight.from_numpy(given)).tolist()
        alone = [getattr(rushlight, name)(rushlight.from_numpy(given[i : i + 1])).item() for i in range(len(rules))]
        every = zip(rules * 9, found, alone * 9, strict=True)
        wrong += [(name, z, wanted, a, b) for (z, wanted), a, b in every if not parts(a) == parts(b) == parts(wanted)]
    assert not wrong


# The exact results, from numbers of 40 digits.
FINITE = [
    ("exp", 1000 + 1e-300j, complex(inf, 1.970071114017047e134)), ("sinh", -1000 + 1e-300j, complex(-inf, 9.850355570085235e133)),
    ("cosh", -1000 + 1e-300j, complex(inf, -9.850355570085235e133)), ("sin", 1e-300 + 1000j, complex(9.850355570085235e133, inf)),
    ("cos", 1e-300 - 1000j, complex(inf, 9.850355570085235e133)), ("atan", 1e-300 + 1j, complex(math.pi / 4, 345.7343375393868)),
    ("atan", 1 + 1e300j, complex(math.pi / 2, 1e-300)), ("atanh", 1e300 - 1e300j, complex(5e-301, -math.pi / 2)),
    ("sigmoid", -1000 + 1e-300j, complex(0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "z", "wanted"), FINITE)
def test_parts_stay_finite_where_factors_overflow(name: str, z: complex, wanted: complex) -> None:
    found = getattr(rushlight, name)(rushlight.tensor([z] * 5, dtype=rushlight.complex128)).tolist()
    assert all(
        f.real == pytest.approx(wanted.real, rel=1e-13) and f.imag == pytest.approx(wanted.imag, rel=1e-13)
        for f in found
    )


def test_quotients_have_the_signs_of_their_zeros_and_divide_by_zero_part_by_part() -> None:
    values = [complex(a, b) for a in (0.0, -0.0, 1.0, -2.0, inf) for b in (0.0, -0.0, 1.0, -2.0, inf)]
    a, b = (np.array(v) for v in zip(*[(p, q) for p in values for q in values], strict=True))
    with np.errstate(all="ignore"):
        wanted = (a / b).tolist()
    found = (rushlight.from_numpy(a) / rushlight.from_numpy(b)).tolist()
    assert [parts(z) for z in found] == [parts(z) for z in wanted]


def test_powers_of_zero_and_to_zero() -> None:
    zero = rushlight.zeros(5, dtype=rushlight.complex128)
    assert zero.pow(rushlight.tensor([0j, 1 + 5j, 1j, -1, complex(inf, 1)])).resolve_conj().numpy()[
        [0, 1, 4]
    ].tolist() == [1, 0, 0]
    assert zero.pow(rushlight.tensor([1j, -1, -1 + 1j, -2, 1j], dtype=zero.dtype)).isnan().all()
    assert rushlight.tensor([complex(inf, nan), complex(nan, nan)]).pow(0).tolist() == [1, 1]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
def test_special_values_are_those_of_numpy_or_pytorch(dtype: Any) -> None:
    pytest.importorskip("torch")
    from tools.sweeps import complex_specials as sweep

    assert not [line for name in sweep.NAMES for line in sweep.disagreements(name, dtype) if not sweep.KEPT.match(line)]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_logaddexp_of_infinities_is_pytorchs(dtype: str) -> None:
    torch = rushlight

    def total(a: complex, b: complex) -> complex:
        return torch.logaddexp(*(torch.tensor(v, dtype=getattr(torch, dtype)) for v in (a, b))).item()  # type: ignore[no-any-return]

    assert total(complex(-inf, 1), complex(-inf, 2)) == complex(-inf, 2)
    assert total(complex(-inf, 2), complex(-inf, 0)) == complex(-inf, 0)
    assert total(complex(-inf, 2), complex(1, 0)) == 1
    endless = total(complex(inf, 0), complex(inf, 0))
    assert endless.real == inf and (endless.imag == 0 or math.isnan(endless.imag))
    for pair in ((complex(-inf, nan), 1), (1, complex(nan, 0)), (complex(inf, 0), complex(0, nan))):
        found = total(*pair)
        assert math.isnan(found.real) and math.isnan(found.imag)
