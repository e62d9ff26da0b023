"""`functorch.compile`: functions for graphs that are traced ahead of time."""

from importlib import import_module

for _page in ("aot_autograd", "compilers", "partitioners", "config"):
    _module = import_module(f"rushlight._functorch.{_page}")
    globals().update((_name, getattr(_module, _name)) for _name in getattr(_module, "__all__", ()))
config = _module
compiled_function, compiled_module = globals()["aot_function"], globals()["aot_module"]
del _page, _module
