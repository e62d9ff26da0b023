"""Counts of floating point operations: against formulas, by module, of operators of one's own, and beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight
from rushlight import nn
from rushlight.utils.flop_counter import (
    FlopCounterMode,
    register_flop_formula,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)


def counted(mode: Any, call: Callable[[], Any]) -> dict[str, int]:
    with mode(display=False) as counter:
        call()
    found = counter.get_flop_counts().get("Global", {})
    assert counter.get_total_flops() == sum(found.values())
    return {str(key): count for key, count in found.items()}


def trained(torch: Any, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Any]:
    inputs = [torch.ones(shape, requires_grad=True) for shape in shapes]
    return lambda: function(*inputs).sum().backward()


CASES: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "mm": lambda t: trained(t, t.mm, (3, 4), (4, 5)),
    "addmm": lambda t: trained(t, t.addmm, (5,), (3, 4), (4, 5)),
    "bmm": lambda t: trained(t, t.bmm, (2, 3, 4), (2, 4, 5)),
    "baddbmm": lambda t: trained(t, t.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "matmul folded": lambda t: trained(t, t.matmul, (2, 3, 4), (4, 5)),
    "matmul broadcast": lambda t: trained(t, t.matmul, (2, 1, 3, 4), (6, 4, 5)),
    "mv": lambda t: trained(t, t.mv, (3, 4), (4,)),
    "linear": lambda t: trained(t, t.nn.functional.linear, (2, 3, 4), (5, 4), (5,)),
    "linear without bias": lambda t: trained(t, t.nn.functional.linear, (2, 3, 4), (5, 4)),
    "einsum": lambda t: trained(t, lambda a, b: t.einsum("ij,jk->ik", a, b), (3, 4), (4, 5)),
    "conv2d": lambda t: trained(t, lambda x, w: t.conv2d(x, w, stride=2, padding=1), (2, 3, 8, 8), (4, 3, 3, 3)),
    "conv2d of data": lambda t: (
        lambda: t.conv2d(t.ones(2, 3, 8, 8), t.ones(4, 3, 3, 3, requires_grad=True)).sum().backward()
    ),
    "conv2d in groups": lambda t: trained(t, lambda x, w: t.conv2d(x, w, groups=2), (2, 4, 6, 6), (6, 2, 3, 3)),
    "conv1d without batch": lambda t: trained(t, t.conv1d, (3, 9), (4, 3, 3)),
    "conv_transpose2d": lambda t: trained(
        t, lambda x, w: t.conv_transpose2d(x, w, groups=2, stride=2), (2, 4, 5, 5), (4, 3, 3, 3)
    ),
    "pointwise": lambda t: trained(t, lambda a, b: (a * b).exp(), (3, 4), (3, 4)),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_pytorch(name: str) -> None:
    reference: Any = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode
    assert counted(FlopCounterMode, CASES[name](rushlight)) == counted(theirs, CASES[name](reference))


def test_counts() -> None:
    assert counted(FlopCounterMode, CASES["linear"](rushlight)) == {"aten.addmm": 240, "aten.mm": 480}
    grouped = counted(FlopCounterMode, CASES["conv2d in groups"](rushlight))
    assert grouped == {"aten.convolution": 6912, "aten.convolution_backward": 20736}
    q, k, v = (2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)
    attention = counted(
        FlopCounterMode, trained(rushlight, rushlight.nn.functional.scaled_dot_product_attention, q, k, v)
    )
    once = 2 * 2 * 3 * 4 * 6 * 8  # of the five products of backward and the two of forward
    name = "aten._scaled_dot_product_flash_attention"
    assert attention == {name: 2 * once, f"{name}_backward": 5 * once}


def test_modules_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 2)))
    with FlopCounterMode(depth=2) as counter:
        model(rushlight.ones(300, 4)).sum().backward()
    counts = {name: sum(found.values()) for name, found in counter.get_flop_counts().items()}
    assert counts == {
        "Global": 67200,
        "Sequential": 67200,
        "Sequential.0": 38400,
        "Sequential.2": 28800,
        "Sequential.2.0": 28800,
    }
    printed = capsys.readouterr().out
    assert printed == counter.get_table(2) + "\n"
    assert [line.rstrip() for line in printed.splitlines()[:6]] == [
        "Module             FLOP    % Total",
        "--------------  -------  ---------",
        "Sequential      67.200K    100.00%",
        " - aten.addmm   28.800K     42.86%",
        " - aten.mm      38.400K     57.14%",
        " Sequential.0   38.400K     57.14%",
    ]
    assert "Sequential.2.0" not in printed and "  Sequential.2.0" in counter.get_table(3)


def test_outside_of_modules_there_is_a_row_for_all() -> None:
    with FlopCounterMode(display=False) as counter:
        rushlight.ones(30, 40) @ rushlight.ones(40, 50)
        nn.Linear(2, 2)(rushlight.ones(1, 2))
    assert counter.get_table().splitlines()[2].split() == ["Global", "120.008K", "100.00%"]
    with FlopCounterMode(display=False) as counter:
        pass
    assert counter.get_total_flops() == 0 and counter.get_table().splitlines()[-1].split() == ["Global", "0.000", "0%"]


def test_operators_of_ones_own() -> None:
    @rushlight.library.custom_op("flops_test::scale", mutates_args=())
    def scale(x: rushlight.Tensor, factor: float) -> rushlight.Tensor:
        return x * factor

    target = rushlight.ops.flops_test.scale
    with FlopCounterMode(display=False, custom_mapping={target: lambda x, factor, out_shape: x[0] * 7}) as counter:
        scale(rushlight.ones(5), 2.0)
    assert counter.get_flop_counts()["Global"] == {target: 35}

    @register_flop_formula(target)
    def formula(x: Any, factor: float, out_shape: Any = None, **kwargs: Any) -> int:
        return int(x.numel() + out_shape.numel())

    with FlopCounterMode(display=False) as counter:
        scale(rushlight.ones(5), 2.0)
    assert counter.get_total_flops() == 10
    with pytest.raises(RuntimeError, match="duplicate registrations"):
        register_flop_formula(target)(formula)
    with pytest.raises(ValueError, match="expected each target to be OpOverloadPacket"):
        register_flop_formula(rushlight.add)(formula)
    with pytest.warns(UserWarning, match="mods argument is not needed"):
        FlopCounterMode(nn.Linear(1, 1), display=False)


def test_attention_by_shapes() -> None:
    query, key, value = (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)
    products = 2 * 2 * 3 * 5 * 7  # two operations for each of these, and each number that is added up
    assert sdpa_flop_count(query, key, value) == products * (4 + 6)
    assert sdpa_backward_flop_count((2, 3, 5, 6), query, key, value) == products * (4 + 6 + 6 + 4 + 4)
    for wrong in ((query, (2, 3, 7, 5), value), (query, (2, 2, 7, 4), value), (query, key, (2, 3, 8, 6))):
        with pytest.raises(AssertionError, match="do not fit"):
            sdpa_flop_count(*wrong)
    with pytest.raises(AssertionError, match="another shape"):
        sdpa_backward_flop_count((2, 3, 5, 4), query, key, value)
