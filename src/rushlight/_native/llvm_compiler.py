"""LLVM text to object code for one target; run as a script, the worker process that does it for another one.

A worker knows nothing of rushlight: it reads a line of JSON (where llvmlite lies, what to compile for), then requests
from its standard input, and answers each on its standard output.  It ends when its input ends, so when its parent does,
whatever the reason.

    request   number (8 bytes), level (1), length of the text (4), the text
    answer    number (8 bytes), status (1), length (4), BLAKE2b of what was asked and what is answered (32), the object or LLVM's message
"""

from __future__ import annotations

import sys
from struct import Struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import blake2b
else:
    try:
        from _blake2 import blake2b  # as `_base.digest` does, which a worker does not import
    except ImportError:
        from hashlib import blake2b

__all__ = ["ANSWER", "FAILED", "LEVELS", "OPT_LEVELS", "READY", "REQUEST", "ObjectCompiler", "seal"]

# Passes that run before instruction selection (which costs some 2.5 ms at every level):
#   none    nothing
#   quick   inlines what must be, SROA, instcombine, simplifycfg: for text that is already as it should be (0.3 ms), and for
#           functions of the native language without loops to vectorise
#   kernel  LLVM's O1 pipeline (early CSE, LICM, instcombine): for loop nests written with explicit vector types; its
#           vectorisers and unroller are off, because the generator has decided on both (1.7 ms)
#   loops   O3 with both vectorisers and the unroller: for scalar loops that LLVM must vectorise (3 ms and more)
#   native  O2 with the loop vectoriser and inlining: for functions of the native language
# Each entry: speed level, loop vectoriser, SLP vectoriser, unroller and interleaving, code generation level.
OPT_LEVELS: dict[str, tuple[int, bool, bool, bool, int] | None] = {
    "none": None,
    "quick": None,
    "kernel": (1, False, False, False, 2),
    "loops": (3, True, True, True, 2),
    "native": (2, True, False, True, 2),
}
LEVELS = tuple(OPT_LEVELS)  # a level's number in requests

REQUEST, ANSWER = Struct("<QBI"), Struct("<QBI32s")
READY, FAILED = 0, 1


class ObjectCompiler:
    """One target's LLVM state, made on first use.  `llvm` is the module `llvmlite.binding`."""

    def __init__(self, llvm: Any, cpu: str, features: str) -> None:
        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # Loop strength reduction takes up to a second on bodies with many addresses (strided loads, one per lane)
        # and gains nothing here: the loops are written with the addressing that the machine has.
        llvm.set_option("rushlight", "-disable-lsr")
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small", jit=True
        )

    def object_code(self, text: str, opt: str) -> bytes:
        """The object file of LLVM text.  RuntimeError with LLVM's message when the text is malformed."""
        data: bytes = self.machine.emit_object(self.optimise(text, opt))
        return data

    def optimise(self, text: str, opt: str) -> Any:
        """The parsed and optimised module."""
        llvm = self.llvm
        module = llvm.parse_assembly(text)
        if opt not in OPT_LEVELS:
            raise ValueError(f"unknown optimisation level {opt!r}; known: {', '.join(OPT_LEVELS)}")
        setting = OPT_LEVELS[opt]
        if opt == "none":
            return module
        if setting is None:
            return self._quick(module)
        speed, loops, slp, unroll, _ = setting
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        options.loop_vectorization, options.slp_vectorization = loops, slp
        options.loop_unrolling = options.loop_interleaving = unroll
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)
        return module

    def _quick(self, module: Any) -> Any:
        llvm = self.llvm
        builder = llvm.create_pass_builder(self.machine, llvm.create_pipeline_tuning_options(speed_level=1))
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, builder)
        return module


def seal(number: int, level: int, text: bytes, status: int, body: bytes) -> bytes:
    """The digest that binds an answer to its request."""
    return blake2b(REQUEST.pack(number, level, len(text)) + text + bytes([status]) + body, digest_size=32).digest()


# ***** the worker process *****


def _serve(source: Any, sink: Any) -> None:
    """Answer requests until the input ends."""
    import json

    setting = json.loads(source.readline())
    sys.path[:] = [setting["llvmlite"], *sys.path]
    import llvmlite.binding as llvm

    compiler = ObjectCompiler(llvm, setting["cpu"], setting["features"])
    while len(head := source.read(REQUEST.size)) == REQUEST.size:
        number, level, size = REQUEST.unpack(head)
        text = source.read(size)
        if len(text) < size:
            return
        try:
            status, body = READY, compiler.object_code(text.decode(), LEVELS[level])
        except RuntimeError as error:
            status, body = FAILED, str(error).encode()
        sink.write(ANSWER.pack(number, status, len(body), seal(number, level, text, status, body)) + body)
        sink.flush()


def _main() -> None:
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group, and is for the program
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever LLVM prints is no answer
    try:
        _serve(os.fdopen(0, "rb"), sink)
    except BrokenPipeError:
        pass
    os._exit(0)  # LLVM's destructors take longer than anybody waits


if __name__ == "__main__":
    _main()
