"""Factorisations on CUDA devices: which routine computes which.

| | one program a matrix | in blocks | by the host |
| --- | --- | --- | --- |
| `cholesky`, real | up to 64 rows | larger | |
| `triangular_solve`, real | up to 64 rows | larger | |
| `lu`, real | up to 64 rows and columns | | larger |
| `permutation` | up to 4096 rows | | larger |
| complex matrices, `qr`, `eigh`, `eig`, `svd`, `ldl`, `ldl_solve`, `least_squares` | | | all |

cuSOLVER takes the place of any of them but `eig`, `ldl`, `ldl_solve`, `least_squares`, `triangular_solve` and `permutation`
where it is installed and was measured to be faster (see `choice`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.linalg.blocked import cholesky_steps, solve_steps
from rushlight._backends.cuda.linalg.choice import chosen
from rushlight._backends.cuda.linalg.host import host_step
from rushlight._backends.cuda.linalg.small import LARGEST, lu_launch, permutation_launch
from rushlight._backends.cuda.program.steps import Step
from rushlight._schedule.library import CallForm
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node

__all__ = ["BY_HOST", "HOST_PARTS"]

BY_HOST = ("eigh", "eig", "svd", "ldl", "ldl_solve", "least_squares", "qr", "reflections")
_LONGEST_ORDER = 4096
# What the host's LAPACK computes of each, as a step that `explain` names.
HOST_PARTS = {
    **dict.fromkeys(BY_HOST, "all"),
    "cholesky": "complex matrices",
    "triangular_solve": "complex matrices",
    "lu": f"complex matrices, and those of more than {LARGEST} rows or columns",
    "permutation": f"more than {_LONGEST_ORDER} rows",
}


def has_elements(node: Node) -> bool:
    """Whether operands and the first result have elements; Q is made of reflections."""
    packed = node.params.get("form", "packed") == "packed"
    return packed and all(numel(v.shape) for v in (*node.inputs, *node.outputs[:1]))


def _either(
    fits: Callable[[ExternCall], bool], kernels: Callable[[ExternCall], list[Step]]
) -> Callable[[ExternCall], list[Step]]:
    """Kernels where a call fits them, else the host; or cuSOLVER."""
    return lambda call: chosen(call, kernels(call) if fits(call) else [host_step(call)])


def _is_real(call: ExternCall) -> bool:
    return not call.inputs[0].dtype.is_complex


def _is_small(call: ExternCall) -> bool:
    return _is_real(call) and max(call.inputs[0].shape[-2:]) <= LARGEST


def _lu(call: ExternCall) -> list[Step]:
    factors, pivots, info = call.outputs
    return [lu_launch(call.inputs[0], factors, pivots, info)]


def _permutation(call: ExternCall) -> list[Step]:
    return [permutation_launch(call.inputs[0], call.outputs[0])]


_DENSE = CallForm()
extern("cholesky", has_elements, _DENSE)(_either(_is_real, cholesky_steps))
extern("triangular_solve", has_elements, _DENSE)(_either(_is_real, solve_steps))
extern("lu", has_elements, _DENSE)(_either(_is_small, _lu))
extern("permutation", has_elements, _DENSE)(_either(lambda call: call.params["size"] <= _LONGEST_ORDER, _permutation))
for _name in BY_HOST:
    extern(_name, has_elements, _DENSE)(lambda call: chosen(call, [host_step(call)]))
