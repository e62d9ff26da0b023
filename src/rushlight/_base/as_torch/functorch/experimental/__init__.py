"""Functions that `functorch` had before they came to `torch.func`, and control flow."""

from importlib import import_module

_module = import_module("rushlight._functorch.experimental")
globals().update((_name, getattr(_module, _name)) for _name in _module.__all__)
del _module
