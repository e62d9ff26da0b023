"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from typing import ParamSpec as _ParamSpec, TypeVar as _TypeVar

P: _ParamSpec
R: _TypeVar
