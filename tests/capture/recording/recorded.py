"""Comparisons of recorded programs with eager calls, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight as torch
from rushlight._capture.recording import Recording


def bits(x: Any) -> Any:
    x = x.detach()
    x = torch.view_as_real(x) if x.is_complex() else x
    return x.contiguous().reshape(-1).view(torch.uint8).tolist()


def assert_same(a: Any, b: Any) -> None:
    assert (a.shape, a.dtype, a.stride(), a.requires_grad) == (b.shape, b.dtype, b.stride(), b.requires_grad)
    assert bits(a) == bits(b), f"{a} and {b}"


def program_of(function: Callable[..., Any], *xs: Any) -> tuple[Recording, Any]:
    """The recording of a function that returns a list of tensors, and its program."""
    with Recording() as recording:
        made = function(*[recording.stand_in(x) for x in xs])
        return recording, recording.finish(made)


def check(function: Callable[..., Any], *make: Callable[[], Any], gradients: bool = True) -> Any:
    """Compare two calls of a function with two of its program; `make` makes the arguments, the same ones each time."""
    eager, mine = [[m() for m in make] for _ in range(2)]
    recording, program = program_of(function, *mine)
    for number in range(2):
        torch.manual_seed(number)
        want = function(*eager)
        after = torch.get_rng_state().tolist()
        torch.manual_seed(number)
        found = program([*mine, *recording.inputs[len(mine) :]])
        assert torch.get_rng_state().tolist() == after
        for a, b in zip(want, found, strict=True):
            assert_same(a, b)
        wanting = [i for i, x in enumerate(want) if x.grad_fn is not None]
        if wanting and gradients:
            torch.manual_seed(7)
            cotangents = [torch.randn(want[i].shape) for i in wanting]
            torch.autograd.backward([want[i] for i in wanting], cotangents)
            torch.autograd.backward([found[i] for i in wanting], cotangents)
        for a, b in zip(eager, mine, strict=True):
            assert_same(a, b)
            assert a._version == b._version
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                assert_same(a.grad, b.grad)
    return program


def normal(*shape: int, grad: bool = False) -> Callable[[], Any]:
    return lambda: torch.randn(shape, generator=torch.Generator().manual_seed(3)).requires_grad_(grad)
