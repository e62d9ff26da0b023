"""Function transforms: `grad`, `vjp`, `jvp`, `vmap` and what is made of them; they compose in any order.

    >>> import rushlight as torch
    >>> from rushlight.func import grad, vmap
    >>> grad(grad(torch.sin))(torch.tensor(1.0))
    tensor(-0.8415)
    >>> vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3))
    tensor([3., 3.])

Source: the semantics follow PyTorch's `torch.func`; reverse over forward mode and the order of levels follow
Pearlmutter and Siskind, "Lazy multivariate higher-order forward-mode AD" (2007).
"""

from __future__ import annotations

from rushlight._surface.functorch.forward import hessian, jacfwd, jvp, linearize
from rushlight._surface.functorch.functionalize import debug_unwrap, functionalize
from rushlight._surface.functorch.reverse import grad, grad_and_value, jacrev, vjp
from rushlight._surface.functorch.vmap import vmap
from rushlight.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from rushlight.func.rearranged import rearrange

__all__ = [
    "debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "rearrange",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
