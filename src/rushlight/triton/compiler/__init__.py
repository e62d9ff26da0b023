"""`triton.compiler`: compiled kernels, and the errors of their compilation."""

from __future__ import annotations

from . import compiler, errors
from .compiler import ASTSource, CompiledKernel, GPUTarget, compile, make_backend
from .errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct

__all__ = [
    "ASTSource", "CompilationError", "CompileTimeAssertionFailure", "CompiledKernel", "GPUTarget", "UnsupportedLanguageConstruct", "compile",
    "compiler", "errors", "make_backend",
]  # fmt: skip
