"""Control flow over tensors: `cond` and `map`."""

from importlib import import_module

for _page in ("_higher_order_ops",):
    _module = import_module(f"rushlight.{_page}")
    globals().update((_name, getattr(_module, _name)) for _name in ("cond", "map"))
del _page, _module
