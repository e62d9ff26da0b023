"""Element-wise functions in C++, as `torch.cuda.jiterator`: they are read here, and nothing here compiles them.

There is no compiler of C++ in rushlight.  What such a function computes can be written in Python under `torch.compile`,
which fuses it into one kernel, or in the Triton language (`rushlight.triton`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from rushlight.cuda.access import gpu

__all__: list[str] = []

_TEMPLATE = re.compile(r"^\s*template\s*<\s*typename\s+(\w+)\s*>\s*(\w+(?:\s*[&*])?)\s+(\w+)\s*\((.*?)\)", re.DOTALL)


def _create_jit_fn(code_string: str, **kwargs: Any) -> Callable[..., Any]:
    """A function of tensors from the text of a C++ template; calling it raises NotImplementedError.

    ValueError for a text that is no template of one type.
    """
    return _refusing(code_string, "_create_jit_fn")


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: Any) -> Callable[..., Any]:
    """The same for functions that write `num_outputs` results by reference."""
    return _refusing(code_string, "_create_multi_output_jit_fn")


def _refusing(code: str, maker: str) -> Callable[..., Any]:
    found = _TEMPLATE.match(code)
    if found is None:
        raise ValueError(f"Couldn't parse code, please check correctness:\n {code}")
    name = found.group(3)

    def refuse(*tensors: Any, **kwargs: Any) -> NoReturn:
        gpu(f"jiterator.{maker}")
        raise NotImplementedError(
            f"torch.cuda.jiterator: {name}() is C++, for which rushlight has no compiler: write it in Python under "
            "torch.compile, or as a kernel of triton"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse
