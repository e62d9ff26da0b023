"""Random numbers on the CPU: the table of the native kernels that draw from the engine of `mt19937`, one for each
distribution.

The streams are PyTorch's, bit for bit: the number of words that an element takes, their order, and the rounding of each
result are part of these kernels' contract (`tests/random` checks it).

A kernel takes its words in chunks into the scratch memory of the generator and transforms them in a loop of its own, so
that state and words stay in the L1 cache.  Results are rounded to the dtype as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.random.mt19937 import mt_restore, mt_save, mt_take
from rushlight._backends.cpu.random.random_choices import (
    make_binomial,
    make_choice,
    make_gamma,
    make_leaks,
    make_multinomial,
    make_poisson,
    make_weights_status,
)
from rushlight._backends.cpu.random.random_integers import (
    make_bernoulli,
    make_bernoulli_each,
    make_integers,
    make_outside_unit,
    make_permutation,
)
from rushlight._backends.cpu.random.random_normal import make_normal, make_normal_serial
from rushlight._backends.cpu.random.random_uniform import (
    make_transformed,
    make_uniform,
    to_cauchy,
    to_exponential,
    to_geometric,
)
from rushlight._backends.cpu.runtime.stubs import bind, native_address
from rushlight._native import NativeFunction

__all__ = ["kernel", "native_kernel", "take_address"]

_MAKERS: dict[str, Callable[[str], NativeFunction]] = {
    "uniform": make_uniform,
    "normal": make_normal,
    "normal_serial": lambda kind: make_normal_serial(kind, False),
    "log_normal": lambda kind: make_normal_serial(kind, True),
    "exponential": make_transformed("exponential", to_exponential),
    "cauchy": make_transformed("cauchy", to_cauchy),
    "geometric": make_transformed("geometric", to_geometric),
    "bernoulli": make_bernoulli,
    "bernoulli_each": make_bernoulli_each,
    "outside_unit": make_outside_unit,
    "integers": make_integers,
    "permutation": make_permutation,
    "multinomial": make_multinomial,
    "choice": make_choice,
    "weights_status": make_weights_status,
    "poisson": make_poisson,
    "leaks": make_leaks,
    "binomial": make_binomial,
    "gamma": make_gamma,
    "save": lambda kind: mt_save,
    "restore": lambda kind: mt_restore,
}
_made: dict[tuple[str, str], NativeFunction] = {}
_bound: dict[tuple[str, str], Callable[..., Any]] = {}


def native_kernel(name: str, kind: str = "") -> NativeFunction:
    """The kernel `name` for an element type (`f32`, `bf16`, `i64`..., or as the maker's docstring says), not compiled."""
    key = (name, kind)
    if key not in _made:
        _made[key] = _MAKERS[name](kind)
    return _made[key]


def kernel(name: str, kind: str = "") -> Callable[..., Any]:
    """The same, compiled: a function of integers (addresses and sizes) and floats that releases the GIL."""
    key = (name, kind)
    bound = _bound.get(key)
    if bound is None:
        bound = _bound[key] = bind(native_kernel(name, kind), nogil=True)
    return bound


def take_address() -> int:
    """The address of the compiled `mt_take`; a generator's block must hold it before a kernel draws."""
    return native_address(mt_take)
