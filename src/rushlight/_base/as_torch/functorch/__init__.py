"""The package `functorch`, which PyTorch brings along: the transforms of `torch.func` by their older names."""

from importlib import import_module

from rushlight._base.alias import LEVEL, install

install()
__version__ = LEVEL

for _page in ("deprecated", "make_functional"):
    _module = import_module(f"rushlight._functorch.{_page}")
    globals().update((_name, getattr(_module, _name)) for _name in _module.__all__ if _name not in globals())
del _page, _module
make_fx = import_module("rushlight.fx.experimental.proxy_tensor").make_fx
