"""Programs compiled ahead of time: into a package (`.rlp`), or a shared library with a header for C."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight._interface.packaging import build_program, load_tensors
from rushlight.compiler.compilation import check_options

__all__ = ["aot_compile", "aoti_compile_and_package", "aoti_load_package"]


def aoti_compile_and_package(
    exported_program: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    package_path: str | os.PathLike[str] | None = None,
    inductor_configs: Mapping[str, Any] | None = None,
) -> str:
    """Compile a program ahead of time into one file; its path.

    The program is that of `torch.export.export`, or a module or function with example arguments `args` and `kwargs`:
    tensors among these are its inputs, tensors that it reads otherwise are weights, and the rest stays as it is.
    Without `package_path` the file is `model.rlp` in a new temporary folder.  `inductor_configs` are options of
    `torch.compile`.  The file is rushlight's own, not one of PyTorch's AOTInductor.

    A program with symbolic sizes is planned for each choice of sizes within their ranges, 1,024 at most.

    Raises RuntimeError (`PackageError`) for programs that draw random numbers, or write to their weights or inputs, and
    names the reason.

        >>> import os, tempfile
        >>> import rushlight as torch
        >>> model = torch.nn.Linear(2, 1).eval()
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = torch._inductor.aoti_compile_and_package(
        ...     model, (torch.ones(3, 2),), package_path=os.path.join(folder.name, "linear.rlp"))
        >>> loaded = torch._inductor.aoti_load_package(path)
        >>> bool((loaded(torch.ones(3, 2)) - model(torch.ones(3, 2))).abs().max() < 1e-6)
        True
        >>> folder.cleanup()
    """
    made = built(exported_program, args, kwargs, inductor_configs, "model")
    if package_path is None:
        package_path = os.path.join(tempfile.mkdtemp(prefix="rushlight-"), "model.rlp")
    path: str = made.write(package_path)
    return path


def aoti_load_package(
    path: str | os.PathLike[str], run_single_threaded: bool = False, device_index: int = -1
) -> Callable[..., Any]:
    """The program of a package that `aoti_compile_and_package` wrote.

    It takes tensors and gives tensors, or takes NumPy arrays and gives arrays; `inputs` and `outputs` list (name, dtype,
    shape).  Loading needs no compiler.  With `run_single_threaded` each call runs on the thread that makes it.

    A package is machine code: load those alone that you would run.  Raises RuntimeError (`PackageError`) for a file that
    is no package, is damaged, has another format, or has no code for this processor.
    """
    if device_index not in (-1, 0):
        raise RuntimeError(f"packages run on the CPU, not on device {device_index}")
    loaded: Any = load_tensors(path)
    if run_single_threaded:
        loaded.set_threads(1)
    found: Callable[..., Any] = loaded
    return found


def aot_compile(
    gm: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, options: Mapping[str, Any] | None = None
) -> str:
    """Compile a module, a function or an exported program into a shared library that C calls; its path.

    The library holds the weights, and needs the C library alone; the header lies beside it.  The option
    `aot_inductor.output_path` names the file (`libNAME.so` gives functions that begin with `NAME`); without it the
    library is `libmodel.so` in a new temporary folder.  Its interface is rushlight's own, not that of AOTInductor.
    """
    rest = dict(options or {})
    path = rest.pop("aot_inductor.output_path", None) or os.path.join(
        tempfile.mkdtemp(prefix="rushlight-"), "libmodel.so"
    )
    name = os.path.basename(path).removesuffix(".so").removeprefix("lib")
    written: tuple[str, str] = built(gm, args, kwargs, rest, name).write_library(path)
    return written[0]


def built(
    program: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
    name: str,
    levels: Sequence[str] | None = None,
    limits: Mapping[str, tuple[int, int]] | None = None,
) -> Any:
    """The program of a module, a function, or an exported program, with its code; `limits` narrow the ranges of sizes."""
    checked = check_options(dict(options)) if options else None
    return build_program(program, args, kwargs, name=name, levels=levels, options=checked, limits=limits)
