"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, dict as _dict, int as _int, str as _str
from rushlight._engine.core.tensor import Tensor as _Tensor
from typing import Any as _Any, Self as _Self

class Buffer(_Tensor):

    def __new__(cls, data: _Any=..., *, persistent: _bool=...) -> _Any:
        ...
class Parameter(_Tensor):

    def __new__(cls, data: _Any=..., requires_grad: _bool=...) -> _Self:
        ...

    def __deepcopy__(self, memo: _dict[_int, _Any]) -> _Any:
        ...

    def __repr__(self, *, tensor_contents: _Any=...) -> _str:
        ...

    def __reduce_ex__(self, proto: _Any) -> _Any:
        ...
from rushlight._engine.core.tensor import Tensor as Tensor
from rushlight.nn.uninitialized import UninitializedBuffer as UninitializedBuffer
from rushlight.nn.uninitialized import UninitializedParameter as UninitializedParameter
from rushlight.nn.uninitialized import UninitializedTensorMixin as UninitializedTensorMixin
def factory_kwargs(kwargs: _dict[_str, _Any] | None) -> _dict[_str, _Any]: ...
def is_lazy(param: _Any) -> _bool: ...
from rushlight.serialization.rebuild import rebuild_parameter as rebuild_parameter
from rushlight.serialization.rebuild import rebuild_parameter_with_state as rebuild_parameter_with_state
