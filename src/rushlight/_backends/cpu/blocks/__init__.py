"""Block kernels on the CPU: compiled to vector code, their programs run by the thread pool."""

from .launch import CHECK_BOUNDS, BlockLaunch, compile_block

__all__ = ["CHECK_BOUNDS", "BlockLaunch", "compile_block"]
