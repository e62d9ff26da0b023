"""In-place changes where a base and its views are of different kinds: complex views of real memory, real views of complex memory, conjugates of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as t

C, R = t.view_as_complex, t.view_as_real


def steps(*program: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    """A function of real memory `b` (2, 2, 2), with its complex view `z`: the steps in turn; the last one's value is real and large enough."""

    def run(b: Any) -> Any:
        names: dict[str, Any] = {"b": b, "z": C(b)}
        for step in program[:-1]:
            step(names)
        return program[-1](names)

    return run


def keep(name: str, view: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """A step that remembers a view."""
    return lambda n: n.__setitem__(name, view(n))


PROGRAMS = {
    "complex view, seen in its base": steps(lambda n: n["z"].mul_(2j), lambda n: n["b"]),
    "complex view": steps(lambda n: n["z"].mul_(2j), lambda n: R(n["z"])),
    "base, seen in its complex view": steps(lambda n: n["b"].mul_(3), lambda n: R(n["z"])),
    "a row of the complex view": steps(lambda n: n["z"][0].mul_(2j), lambda n: R(n["z"])),
    "imaginary parts, seen in the base": steps(lambda n: n["z"].imag.mul_(3), lambda n: n["b"]),
    "imaginary parts, seen in the complex view": steps(lambda n: n["z"].imag.mul_(3), lambda n: R(n["z"])),
    "conjugate, seen in the base": steps(lambda n: n["z"].conj().mul_(2j), lambda n: n["b"]),
    "imaginary parts of the conjugate": steps(lambda n: n["z"].conj().imag.mul_(3), lambda n: n["b"] * R(n["z"])),
    "two complex views": steps(keep("w", lambda n: C(n["b"])[1]), lambda n: n["z"].mul_(2 + 1j), lambda n: R(n["w"]) * n["b"][1]),
    "complex view of a part": steps(lambda n: C(n["b"][:, 1:]).mul_(2 + 1j), lambda n: n["b"]),
    "a part of the complex view": steps(keep("w", lambda n: n["z"][:, :1].t()), lambda n: n["b"][0].mul_(2), lambda n: n["w"].add_(1j), lambda n: R(n["z"] * n["z"])),
    "real parts from imaginary ones": steps(lambda n: n["z"].real.copy_(n["z"].imag * 2), lambda n: R(n["z"] * n["z"])),
    "one element": steps(lambda n: n["z"].__setitem__((0, 0), 3 + 1j), lambda n: n["z"].add_(C(n["b"])), lambda n: R(n["z"])),
    "seen in imaginary parts": steps(keep("w", lambda n: n["z"].imag), lambda n: n["z"].mul_(2j), lambda n: n["w"]),
    "seen in those of the conjugate": steps(keep("w", lambda n: n["z"].conj().imag), lambda n: n["z"].mul_(2j), lambda n: n["w"]),
    "seen in the conjugate": steps(keep("w", lambda n: n["z"].conj()), lambda n: n["z"].mul_(1 + 2j), lambda n: R(n["w"] * n["z"][0])),
    "there and back": steps(keep("w", lambda n: R(n["z"])), lambda n: n["z"].mul_(2j), lambda n: n["w"][0].mul_(3), lambda n: n["w"] * R(n["z"])),
    "complex base": steps(keep("c", lambda n: C(n["b"]) * 1), keep("w", lambda n: R(n["c"])), lambda n: n["w"][0].mul_(3), lambda n: n["c"].mul_(2j), lambda n: n["w"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_slopes(name: str) -> None:
    t.manual_seed(0)
    b = t.randn(2, 2, 2, dtype=t.float64, requires_grad=True)
    assert t.autograd.gradcheck(lambda x: PROGRAMS[name](x * 1), (b,), fast_mode=False)
    assert t.autograd.gradgradcheck(lambda x: PROGRAMS[name](x * x), (b,))


def test_a_complex_view_made_without_gradients_wants_what_its_base_wants() -> None:
    b = t.ones(2, 2, requires_grad=True) * 1
    with t.no_grad():
        z = C(b)
        w = z.conj()
    assert z.requires_grad and w.requires_grad and z.real.requires_grad and not z.detach().requires_grad


def test_the_name_of_the_history() -> None:
    b = t.ones(2, 2, requires_grad=True) * 1
    z = C(b)
    z.mul_(2)
    assert z.grad_fn.name() == "ViewAsComplexBackward0" and b.grad_fn.name() == "torch::autograd::CopySlices"
