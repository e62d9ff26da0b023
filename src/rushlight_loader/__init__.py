"""Programs that `python -m rushlight package` compiled ahead of time, loaded without rushlight: ctypes alone, and NumPy for arrays.

It is a package of its own because `import rushlight` reads 220 files, which takes longer than loading a program and calling it.  It
imports nothing of rushlight, so this folder and a package (`.rlp`) are all that a machine needs which only answers.

    from rushlight_loader import load

    program = load("model.rlp")
    scores = program(image)  # NumPy arrays in the places of tensors
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is not imported to say so
if TYPE_CHECKING:
    from rushlight_loader.errors import PackageError as PackageError
    from rushlight_loader.loading import LoadedPackage as LoadedPackage
    from rushlight_loader.loading import load as load

__all__ = ["LoadedPackage", "PackageError", "load"]


def __getattr__(name: str) -> object:
    """Rushlight itself imports `errors` alone, so the loader is read when somebody asks for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rushlight_loader import errors, loading

    found: object = getattr(errors if name == "PackageError" else loading, name)
    return found
