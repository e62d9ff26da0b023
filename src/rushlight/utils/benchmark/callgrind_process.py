"""The process that Valgrind runs for `Timer.collect_callgrind`: it says itself when counting begins and ends.

Valgrind's requests are a sequence of instructions that does nothing elsewhere (Valgrind manual, "The Client Request
mechanism"), here for x86-64.
"""

from __future__ import annotations

import gc
import pickle
import sys
import timeit
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_uint64
from pathlib import Path
from typing import Any

import rushlight
from rushlight._interface.base import require

__all__ = ["main"]

_TOOL = (ord("C") << 24) | (ord("T") << 16)
_DUMP, _ZERO, _START, _STOP = _TOOL, _TOOL + 1, _TOOL + 4, _TOOL + 5

_TEXT = """
define i64 @request(i64 %code) {
  %words = alloca [6 x i64], align 16
  store [6 x i64] zeroinitializer, ptr %words
  store i64 %code, ptr %words
  %found = call i64 asm sideeffect
    "rolq $$3, %rdi ; rolq $$13, %rdi ; rolq $$61, %rdi ; rolq $$51, %rdi ; xchgq %rbx, %rbx",
    "={rdx},{rax},0,~{memory},~{cc},~{dirflag},~{fpsr},~{flags}"(ptr %words, i64 0)
  ret i64 %found
}
"""


def requester() -> tuple[Callable[[int], int], Any]:
    """A function that sends a request to Valgrind, and what must be kept alive with it."""
    llvm: Any = require("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    module = llvm.parse_assembly(_TEXT)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return CFUNCTYPE(c_uint64, c_uint64)(engine.get_function_address("request")), engine


def main(path: str) -> None:
    """Do what the file says."""
    statement, setup, number, repeats, baseline, threads, folder = pickle.loads(Path(path).read_bytes())
    request, engine = requester()
    rushlight.set_num_threads(threads)
    names = {"torch": rushlight, **rushlight.load(Path(folder) / "names", weights_only=False)}
    timers = [timeit.Timer(statement, setup, globals=names)] * repeats + [timeit.Timer(globals=names)] * baseline
    for timer in timers[::repeats]:
        timer.timeit(min(number, 10))  # plans are made, kernels compiled
    for timer in timers:
        gc.collect()
        request(_START)
        request(_ZERO)
        timer.timeit(number)
        request(_DUMP)
        request(_STOP)
    del engine


if __name__ == "__main__":
    main(sys.argv[1])
