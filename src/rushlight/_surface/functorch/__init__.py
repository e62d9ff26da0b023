"""Function transforms over levels: reverse and forward mode, `vmap`, `functionalize`; `rushlight.func` shows them."""

# These modules say what functions do with tensors of a level.
from rushlight._engine.functorch import function_levels as function_levels
from rushlight._engine.functorch import gradients as gradients
from rushlight._engine.functorch import random_batches as random_batches
