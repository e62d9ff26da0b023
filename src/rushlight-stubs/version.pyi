"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, str as _str

__version__: _str
cuda: None
debug: _bool
git_version: None
hip: None
rocm: None
rushlight: _str
xpu: None
