"""Operators of one's own: `custom_op` makes one of a Python function; `Library` and the `register_*` functions build
one from parts.

>>> import rushlight as torch
>>> @torch.library.custom_op("doc::scaled", mutates_args=())
... def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
...     return x * factor
>>> scaled(torch.ones(2), factor=3.0)
tensor([3., 3.])
>>> torch.ops.doc.scaled.default._schema
doc::scaled(Tensor x, float factor=2.) -> Tensor
"""

from rushlight.library.checks import OpCheckError, opcheck
from rushlight.library.custom import CustomOpDef, custom_op, triton_op
from rushlight.library.inference import infer_schema
from rushlight.library.kernels import wrap_triton
from rushlight.library.libraries import (
    Library,
    _scoped_library,
    define,
    fallthrough_kernel,
    get_ctx,
    get_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)

__all__ = [
    "CustomOpDef", "Library", "OpCheckError", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "impl_abstract",
    "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch",
    "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip
