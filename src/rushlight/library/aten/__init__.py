"""Operators below autograd: PyTorch's aten operators as dispatch modes and classes with `__torch_dispatch__` see them.

A call of the package that reaches a mode goes this way: `calls.below` finds the aten operator of the function
(`functions`: what is made of several operators runs as PyTorch's composites do), chooses the overload by its schema
(`schemas.txt`), records a node whose backward is made of aten operators (`derivatives`), and hands the call to the
mode.  Nothing here is loaded before a mode or such a class is used.
"""
