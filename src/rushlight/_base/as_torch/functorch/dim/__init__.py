"""First-class dims, as PyTorch brings them along."""

from importlib import import_module

for _page in ("dim",):
    _module = import_module(f"rushlight._functorch.{_page}")
    globals().update((_name, getattr(_module, _name)) for _name in (*_module.__all__, "_Tensor"))
    _module.give_tensors_index()
del _page, _module
