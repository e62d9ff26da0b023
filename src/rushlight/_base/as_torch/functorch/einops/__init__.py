"""`functorch.einops`: `rearrange`."""

from importlib import import_module

for _page in ("func",):
    rearrange = import_module(f"rushlight.{_page}").rearrange
del _page
