"""Functions that `functorch` had before they came to `torch.func`, and control flow."""

from importlib import import_module

for _page in ("experimental",):
    _module = import_module(f"rushlight._functorch.{_page}")
    globals().update((_name, getattr(_module, _name)) for _name in _module.__all__)
del _page, _module
