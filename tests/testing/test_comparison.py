"""`assert_close`: what is close, what is not, and the report."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.testing.cases import comparisons, outcome

import rushlight
from rushlight.testing import assert_allclose, assert_close

T = rushlight.tensor


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_every_outcome_and_text_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(comparisons(rushlight), comparisons(torch), strict=True):
        assert outcome(ours) == outcome(theirs)


def test_the_report_counts_and_shows_the_greatest_differences() -> None:
    with pytest.raises(AssertionError) as error:
        assert_close(T([1.0, 4.0, 5.0]), T([1.0, 2.0, 3.0]))
    assert str(error.value).split("\n") == [
        "Tensor-likes are not close!",
        "",
        "Mismatched elements: 2 / 3 (66.7%)",
        "Greatest absolute difference: 2.0 at index (1,) (up to 1e-05 allowed)",
        "Greatest relative difference: 1.0 at index (1,) (up to 1.3e-06 allowed)",
    ]


def test_a_place_in_a_nest_is_named() -> None:
    with pytest.raises(AssertionError, match=r"The failure occurred for item \['a'\]\[1\]$"):
        assert_close({"a": [1, T([2])]}, {"a": [1, T([3])]})


@pytest.mark.parametrize(
    ("dtype", "within", "beyond"),
    [
        (rushlight.float16, 5e-4, 5e-3),
        (rushlight.bfloat16, 8e-3, 5e-2),
        (rushlight.float32, 1e-5, 1e-4),
        (rushlight.float64, 1e-7, 1e-6),
    ],
)
def test_tolerances_follow_the_dtype(dtype: rushlight.dtype, within: float, beyond: float) -> None:
    one = rushlight.ones(2, dtype=dtype)
    assert_close(one + within, one)
    with pytest.raises(AssertionError, match="not close"):
        assert_close(one + beyond, one)


def test_numpy_and_rushlight_do_not_mix() -> None:
    assert_close(np.ones(3), np.ones(3))
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(np.ones(3), rushlight.ones(3, dtype=rushlight.float64))


def test_subclasses_may_be_refused() -> None:
    parameter = rushlight.nn.Parameter(T([1.0]))
    assert_close(parameter, T([1.0]))
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(parameter, T([1.0]), allow_subclasses=False)


def test_a_bool_is_no_number() -> None:
    with pytest.raises(RuntimeError, match="one is a bool"):
        assert_close(True, 1)


def test_what_cannot_be_compared_says_why() -> None:
    float8 = T([1.0]).to(rushlight.float8_e4m3fn)
    with pytest.raises(RuntimeError, match="assert_close: comparing .* failed"):
        assert_close(float8, T([1.0]), check_dtype=False)


def test_the_older_function_warns_and_has_wider_tolerances() -> None:
    with pytest.warns(FutureWarning, match="deprecated since 1.12"):
        assert_allclose(T([1.0]), [1.00005])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_allclose(T([float("nan")]), T([float("nan")], dtype=rushlight.float64))
        with pytest.raises(AssertionError, match=r"up to 1e-05 allowed\)\nGreatest relative difference.*up to 0.0001"):
            assert_allclose(T([1.0]), [1.1])
        with pytest.raises(AssertionError, match="^told$"):
            assert_allclose(T([1.0]), [2.0], msg="told")
