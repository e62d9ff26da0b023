"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, dict as _dict, frozenset as _frozenset, int as _int, list as _list, str as _str, tuple as _tuple
from collections.abc import Callable as _Callable
from rushlight.onnx.importing.table import Row as _Row
from typing import Any as _Any, NamedTuple as _NamedTuple

HOST: _dict[_str, _Any]
MICROSOFT: _str
ML: _str
Numbers = _Any
PREVIEW: _str
class Row(_NamedTuple):
    name: _str
    since: _int
    function: _Callable[..., _Any]
    kinds: _tuple[_str, ...]
    variadic: _bool
    attributes: _frozenset[_str]
    extras: _frozenset[_str]
    open: _bool
    moves: _bool
TRAINING: _str
from rushlight.onnx.importing.errors import UnsupportedOperatorError as UnsupportedOperatorError
Value = _Any
def find(domain: _str, name: _str, opset: _int) -> _Row | None: ...
def host(*names: _str) -> _Callable[[_Any], _Any]: ...
def known() -> _dict[_tuple[_str, _str], _list[_int]]: ...
def operator(*names: _str, since: _int = 1, domain: _str = '', moves: _bool = False) -> _Callable[[_Any], _Any]: ...
