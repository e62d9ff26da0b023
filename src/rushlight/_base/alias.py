"""`torch` as another name for rushlight, in this process and its child processes.

`install` puts a finder before all others: `import torch` or `import torch.nn.functional` then gives the module
`rushlight` or `rushlight.nn.functional` itself, not a copy.  A missing name is reported as it was asked for, whether as
a module, as an attribute or in a `from` import.  Public classes have their names in PyTorch
(`torch.nn.modules.linear.Linear`), so printed and pickled objects are the same as there.

`import triton` gives `rushlight.triton` where the real Triton is not installed (or with RUSHLIGHT_TRITON=own); an
installed one gets a driver by which its kernels run on our tensors.

The folder `as_torch` is on `sys.path` and, for child processes, on PYTHONPATH.  It holds a package `torch` that only
calls `install`, and the metadata that `importlib.metadata` reads of a distribution of that name.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from rushlight._base.alias_table import Sources, hand_on, present_place, sources_of
from rushlight._base.knobs import Knob, one_of
from rushlight._base.naming import absent_module, is_pytorchs, no_name
from rushlight._base.tracebacks import shorten

__all__ = ["FOLDER", "LEVEL", "PRIVATE_PAGES", "install", "install_as_torch"]

OURS, THEIRS = "rushlight", "torch"
TRITON = "triton"


CHOICE = Knob(
    "triton", env="RUSHLIGHT_TRITON", kind=one_of("absent", "own", "real"), default="absent",
    doc="When `import triton` gives `rushlight.triton` under the name torch: where the real one is `absent`, always (`own`), or never (`real`).",
)  # fmt: skip
# The PyTorch version whose interface this is; the label says that it is not PyTorch's own build.
LEVEL = "2.13.0+rushlight"
# Private modules of PyTorch that programs use; ours have the same path.
PRIVATE_PAGES = frozenset((
    "_C", "_VF", "_awaits", "_classes", "_custom_ops", "_decomp", "_dynamo", "_export", "_functorch", "_guards", "_higher_order_ops", "_inductor", "_library", "_logging", "_prims_common", "_refs", "_subclasses", "_tensor", "_tensor_str", "_utils", "_utils_internal",
))  # fmt: skip
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "as_torch")


def install_as_torch(*, children: bool = True) -> None:
    """Make `import torch` mean rushlight in this process and, unless `children` is False, in its child processes.

    `python -m rushlight program.py` does so before the program begins; a second call changes nothing.
    `torch.__version__` and `importlib.metadata.version("torch")` name the PyTorch version whose interface this is,
    `torch.version.rushlight` rushlight's own version.

    RuntimeError if real PyTorch is already imported: a program cannot mix both kinds of tensors.
    """
    install(children=children)


def install(*, children: bool = True) -> None:
    """See `install_as_torch`."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        there = sys.modules.get(THEIRS)
        if there is not None and not _is_ours(there):
            location = getattr(there, "__file__", None)
            raise RuntimeError(
                f"PyTorch is already imported in this process (from {location}); call install_as_torch() before anything imports "
                "torch, or start the program with `python -m rushlight`"
            )
        sys.meta_path.insert(0, _Finder())
        sys.meta_path.append(_Absent())
        _say_level()
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == OURS and _is_public(name.partition(".")[2]):
                _take_part(module)
        if FOLDER not in sys.path:  # after the program's own folder, like PYTHONPATH
            sys.path.insert(0 if sys.flags.safe_path else 1, FOLDER)
    if children:
        _tell_children()


def _is_ours(module: ModuleType) -> bool:
    """Whether the imported `torch` is rushlight, or the package in `as_torch` that is about to replace itself with it."""
    return module is sys.modules.get(OURS) or os.path.dirname(getattr(module, "__file__", None) or "") == os.path.join(
        FOLDER, THEIRS
    )


def _tell_children() -> None:
    """Let child processes find the package `torch` in `as_torch` first."""
    there = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if FOLDER not in there:
        os.environ["PYTHONPATH"] = os.pathsep.join([FOLDER, *there])


def _say_level() -> None:
    """Report PyTorch's version to programs that import `torch`."""
    ours: Any = sys.modules[OURS]
    ours.__version__ = type(ours.__version__)(LEVEL)
    version: Any = sys.modules.get(f"{OURS}.version")
    if version is not None:
        version.__version__ = LEVEL


def _is_public(dotted: str) -> bool:
    """Whether a name below the package is public."""
    first = dotted.partition(".")[0]
    return first in PRIVATE_PAGES or not first.startswith("_") or first.startswith("__")


# ***** finding and loading *****


class _Same(InspectLoader):
    """Loads `torch.x` as `rushlight.x`, and `triton.x` as `rushlight.triton.x`."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an empty module until exec_module replaces it

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = _named(name, importlib.import_module)

    # Queries of `runpy` and `inspect` for a module that is not loaded.

    def is_package(self, fullname: str) -> bool:
        return _named(fullname, _spec).submodule_search_locations is not None

    def get_code(self, fullname: str) -> CodeType | None:
        return _named(fullname, _spec).loader.get_code(_page_of(fullname))

    def get_source(self, fullname: str) -> str | None:
        return _named(fullname, _spec).loader.get_source(_page_of(fullname))


def _named(name: str, get: Callable[[str], Any]) -> Any:
    """`get` of our module that `torch.x` stands for."""
    real = _page_of(name)
    try:
        return get(real)
    except ModuleNotFoundError as error:
        if error.name is None or not (real == error.name or real.startswith(error.name + ".")):
            raise  # a dependency of rushlight is missing
        if name.partition(".")[0] == TRITON:
            raise _no_triton_page(name) from None
        raise ModuleNotFoundError(absent_module(name, name[len(THEIRS) + 1 :]), name=name) from None


def _no_triton_page(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {name!r}: rushlight's Triton language has no such page", name=name)


def _page_of(name: str) -> str:
    """Our module for `torch.x` or `triton.x`."""
    if name.partition(".")[0] == TRITON:
        return f"{OURS}.{name}"
    rest = present_place(name[len(THEIRS) + 1 :])
    page = sources_of(rest)
    return f"{OURS}.{page if isinstance(page, str) else rest}" if rest else OURS


def _spec(real: str) -> ModuleSpec:
    spec = importlib.util.find_spec(real)
    if spec is None:
        raise ModuleNotFoundError(real, name=real)
    return spec


class _HandedOn(InspectLoader):
    """Makes a module of names that are in other pages, or gives such names to a room of the same path."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        room = sys.modules.get(f"{OURS}.{name.partition('.')[2]}")
        if room is not None:
            sys.modules[name] = module = room
        hand_on(module, self.sources)

    def is_package(self, fullname: str) -> bool:
        return True

    def get_source(self, fullname: str) -> str | None:
        return None


class _Watched(InspectLoader):
    """Loads one of our modules as usual, then registers it under its name in PyTorch."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.inner, attribute)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        _take_part(module)

    def is_package(self, fullname: str) -> bool:
        return self.inner.is_package(fullname)

    def get_code(self, fullname: str) -> CodeType | None:
        return self.inner.get_code(fullname)

    def get_source(self, fullname: str) -> str | None:
        return self.inner.get_source(fullname)


class _WithDriver(_Watched):
    """Loads an installed Triton, and lets it launch its kernels on our tensors."""

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        importlib.import_module(f"{OURS}.{TRITON}._launch.installed").activate(module)


class _Finder(MetaPathFinder):
    """Answers for `torch` and everything below it, and for the public modules of rushlight."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root == THEIRS:
            sources = sources_of(present_place(rest))
            if isinstance(sources, dict):
                spec = ModuleSpec(fullname, _HandedOn(sources))
                spec.submodule_search_locations = []
                return spec
            # PyTorch's private modules; ours of the same name are different
            if sources is None and not _is_public(rest):
                if _is_import() or importlib.util.find_spec(f"{OURS}.{rest.partition('.')[0]}") is not None:
                    raise ModuleNotFoundError(absent_module(fullname, rest), name=fullname)
                return None
            try:
                real = importlib.util.find_spec(_page_of(fullname))
            except ModuleNotFoundError as error:  # a page whose names are in a folder of PyTorch
                if error.name is None or not _page_of(fullname).startswith(f"{error.name}."):
                    raise
                real = None
            if real is None:
                if sources_of(present_place(rest.rpartition(".")[0])) is not None and _is_import():
                    # or the folder of the page that the parent stands for would be searched, and a file loaded twice
                    raise ModuleNotFoundError(absent_module(fullname, rest), name=fullname)
                return None
            spec = ModuleSpec(fullname, _Same(), origin=real.origin)
            spec.submodule_search_locations = real.submodule_search_locations
            return spec
        if root == TRITON and _triton_is_ours(rest):
            return _triton_page(fullname, _is_import())
        if fullname == TRITON:
            installed = PathFinder.find_spec(fullname, path, target)
            if installed is not None and installed.loader is not None:
                installed.loader = _WithDriver(installed.loader)
            return installed
        if root == OURS and _is_public(rest) and rest.partition(".")[0] != TRITON:
            plain = PathFinder.find_spec(fullname, path, target)
            if plain is not None and plain.loader is not None:
                plain.loader = _Watched(plain.loader)
            return plain
        return None


def _triton_is_ours(rest: str) -> bool:
    """Whether `triton` (or a page of it) is answered before the installed packages are asked."""
    if not rest:
        return CHOICE.get() == "own"
    return sys.modules.get(TRITON) is sys.modules.get(f"{OURS}.{TRITON}", sys)


def _triton_page(fullname: str, imported: bool) -> ModuleSpec | None:
    """The page of rushlight's Triton language; None where there is none, an error for an import."""
    try:
        real = importlib.util.find_spec(_page_of(fullname))
    except ModuleNotFoundError:
        real = None
    if real is None:
        if imported:
            raise _no_triton_page(fullname)
        return None
    spec = ModuleSpec(fullname, _Same(), origin=real.origin)
    spec.submodule_search_locations = real.submodule_search_locations
    return spec


class _Absent(MetaPathFinder):
    """The last finder: gives `triton` where nobody else has it.  An import of another missing module raises an error that
    names what rushlight lacks; `find_spec` gets None."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root in (THEIRS, "functorch") and rest and _is_import():
            raise ModuleNotFoundError(absent_module(fullname, rest if root == THEIRS else fullname), name=fullname)
        if fullname == TRITON and CHOICE.get() != "real":
            return _triton_page(fullname, _is_import())
        return None


def _is_import() -> bool:
    """Whether an import statement called the finder, and not `importlib.util.find_spec`."""
    frame = sys._getframe(2).f_back  # above the finder: importlib's loop over the finders, then the importer
    return frame is not None and frame.f_code.co_name == "_find_and_load_unlocked"


# ***** modules of ours under their names in PyTorch *****

# Packages with lazy names whose `__dict__` programs inspect.
_LOOKED_THROUGH = ("optim",)

# Classes in inner rooms that PyTorch has on its first page.
_ON_THE_FIRST_PAGE = ("Tensor", "Size", "dtype", "device", "layout", "memory_format")
# Classes of inner rooms whose objects programs pickle and print, with their page in PyTorch.
_ON_OTHER_PAGES = {
    "_base.handles": ("utils.hooks", ("RemovableHandle",)),
    "_engine.autograd.function": ("autograd.function", ("Function",)),
    "_engine.dispatch.modes": ("autograd.grad_mode", ("enable_grad", "inference_mode", "no_grad", "set_grad_enabled")),
    "_engine.random.random": ("_C", ("Generator",)),
}


# Rooms with the path of a private page of PyTorch: both are one module.
_ROOMS_WITH_PAGES = ("_ops",)


def _take_part(module: ModuleType) -> None:
    """Register a public module under its name in PyTorch, give its classes their names there, and report missing names."""
    theirs = THEIRS + module.__name__[len(OURS) :]
    sys.modules[theirs] = module
    if module.__name__ in [f"{OURS}.{name}" for name in _LOOKED_THROUGH]:
        for name in module.__all__:
            getattr(module, name)
    for value in list(vars(module).values()):
        _call_as_there(value, module.__name__)
    if theirs == THEIRS:
        vars(module)[THEIRS] = module  # PyTorch's first page imports itself, so `torch.torch` exists too
        for name in _ON_THE_FIRST_PAGE:
            kind = vars(module)[name]
            kind.__module__, kind.__qualname__, kind.__name__ = THEIRS, name, name
        for value in vars(vars(module)["Tensor"]).values():
            _call_as_there(value, OURS)
        for room, (page, names) in _ON_OTHER_PAGES.items():
            for name in names:
                getattr(importlib.import_module(f"{OURS}.{room}"), name).__module__ = f"{THEIRS}.{page}"
        _pickle_as_there(module)
        for room in _ROOMS_WITH_PAGES:
            hand_on(sys.modules[f"{OURS}.{room}"], cast(Sources, sources_of(room)))
    _report_missing(module)
    # One file here may be a folder there: an import of a submodule asks the finders, which report what is missing
    if not hasattr(module, "__path__"):
        module.__path__ = []
    module.__name__ = theirs


def _pickle_as_there(page: Any) -> None:
    """Make ordinary pickles hold the same as PyTorch's: constants by name, tensors and storages in its format."""
    for kind in (page.dtype, page.layout, page.memory_format, page.qscheme):
        kind.__reduce__ = _by_name

    def utilities() -> Any:
        return importlib.import_module(f"{OURS}._utils")

    sys.modules[f"{OURS}._engine.sharing.pickling"].AS_THERE.append(lambda tensor: utilities().reduce_tensor(tensor))
    for kind in (page.UntypedStorage, page.TypedStorage):
        kind.__reduce__ = lambda storage: utilities().reduce_storage(storage)


def _by_name(constant: Any) -> str:
    return repr(constant).removeprefix(f"{THEIRS}.")


def _call_as_there(value: Any, ours: str) -> None:
    """Rename a class or function defined on one of our pages, or that pickles find on one of PyTorch's private pages."""
    if isinstance(value, (type, FunctionType)) or type(value).__name__ == "operator_function":
        home = value.__dict__.get("__module__", getattr(value, "__module__", None))
        page = THEIRS + ours[len(OURS) :]
        shown = isinstance(value, FunctionType) and value.__qualname__ in vars(sys.modules[ours]).get("__all__", ())
        # The page re-exports names of other files
        if shown and isinstance(home, str) and home.startswith((f"{ours}.", f"{page}.", f"{OURS}._")):
            value.__module__ = page
        elif home in (ours, f"{OURS}._utils", f"{OURS}._tensor", f"{OURS}.serialization"):
            line = value.__dict__.get("__firstlineno__")
            value.__module__ = THEIRS + home[len(OURS) :]
            # Since Python 3.13 a class that moves loses its first line; ours keeps it
            if isinstance(value, type) and line is not None:
                value.__firstlineno__ = line  # type: ignore[attr-defined]


def _is_page(module: ModuleType, place: str) -> bool:
    """Whether PyTorch has a module of this path which is here too, in a file or as names of other pages; its `import
    torch` loads most of them.
    """
    if sources_of(present_place(place)) is not None:
        return True
    name = place.rpartition(".")[2]
    file = "__path__" in vars(module) and not name.startswith("_") and importlib.util.find_spec(f"{OURS}.{place}")
    return bool(file) and is_pytorchs(place) is True


def _report_missing(module: ModuleType) -> None:
    """Give one of our public modules a `__getattr__` whose error says what rushlight lacks."""
    ours = module.__name__
    inner: Callable[[str], Any] | None = module.__dict__.get("__getattr__")

    def __getattr__(name: str) -> Any:
        try:
            if inner is not None:
                try:
                    value = inner(name)
                except AttributeError as error:
                    if error.__cause__ is not None:
                        raise  # its message says more than a missing name
                else:
                    _call_as_there(value, ours)
                    return value
            page = f"{THEIRS}{ours[len(OURS) :]}.{name}"
            if name.isidentifier() and _is_page(module, page.partition(".")[2]):
                return importlib.import_module(page)
            raise no_name(module.__name__, name)
        except BaseException as error:
            shorten(error)
            raise

    module.__dict__["__getattr__"] = __getattr__
