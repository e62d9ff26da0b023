"""Attributes of nodes that show their call: `_saved_self`, `_saved_dim`, `_saved_self_sym_sizes` and others.

Which names a node has is read from `saved_names.txt` (written by `tools/sweeps/saved_values.py --names`); a star marks
tensors.  A value comes from the saved tensors and the call (operator, template, specs) that a backward spec belongs to.
Nothing is computed before it is asked for.

An operator with the node's own name has the node's names for its arguments.  For other operators `_RENAMED` maps the
names.  A value that is not kept raises an AttributeError that says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

from rushlight._base.errors import NotDifferentiableError, OperandError
from rushlight._engine.core.creation import tensor
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.lower import Literal, Slot, differentiate
from rushlight._types.dtype import COMPLEX128, FLOAT64
from rushlight._types.spec import Spec

__all__ = ["answered", "declared", "saved_handle", "saved_value"]

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "saved_names.txt")


@cache
def _nodes() -> dict[str, dict[str, bool]]:
    """The attributes of each node, and whether each is a tensor."""
    with open(_FILE, encoding="utf-8") as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    return {node: {name.rstrip("*"): name.endswith("*") for name in names} for node, *names in lines}


def declared(info: Any) -> dict[str, bool]:
    """Attributes that the nodes of a backward spec show, and whether it is a tensor: the operator's arguments and results where
    PyTorch has no such node.
    """
    if info.origin is None:
        return {}
    found = _nodes().get(info.cls.__name__)
    if found is not None:
        return found
    schema = info.origin[0].schema
    names = {("self" if a.name == "input" else a.name): a.base == "Tensor" for a in schema.arguments}
    results = ["result"] if len(schema.results) == 1 else [r or f"result{i}" for i, r in enumerate(schema.results)]
    return {**names, **dict.fromkeys(results, True)}


# Where an operator's node is one of another operator: what the node calls the operator's arguments.  `.1` is its second
# result, `+0` what it keeps first beside its results; `...` says that the other names are the same.
_RENAMED = {
    "AddBackward0": {"bilinear": ""},
    "AddmmBackward0": {"linear": "self=bias mat1=input"},
    "CholeskyBackward0": {"cholesky_core": "result=+0 ..."},
    "ConstantPadNdBackward0": {"pad": "..."},
    "ConvolutionBackward0": dict.fromkeys([f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)], "..."),
    "DiagEmbedBackward0": {"diag": "offset=diagonal", "diagflat": "..."},
    "DiagonalBackward0_copy": {"diag": "offset=diagonal ..."},
    "DivBackward0": {"true_divide": "..."},
    "DotBackward0": {"matmul": "self=input tensor=other"},
    "EmbeddingBagBackward0": {"embedding_bag_core": "indices=input ..."},
    "GatherBackward0": {"take_along_dim": "dim"},
    "GridSampler2DBackward0": {"grid_sample": "interpolation_mode=mode ..."},
    "GridSampler3DBackward0": {"grid_sample": "interpolation_mode=mode ..."},
    "HardtanhBackward0": {"relu6": ""},
    "EluBackward0": {"selu": "self=input"},
    "Im2ColBackward0": {"unfold": "..."},
    "LinalgCholeskyExBackward0": {"cholesky_ex": "L=+0 ..."},
    "LinalgLuSolveBackward0": {"lu_solve": "LU=LU_data pivots=LU_pivots B=input ..."},
    "LinalgLstsqBackward0": {"linalg_lstsq_pivoted": "self=input ...", "linalg_lstsq_full_rank": "self=input ..."},
    "LinalgPinvBackward0": {"linalg_pinv_core": "self=A result=.0 ..."},
    "LinalgSolveExBackward0": {"solve_ex": "LU=+0 ..."},
    "MmBackward0": {"matmul": "self=input mat2=other", "linear": "self=input"},
    "MulBackward0": {"ldexp": "self=input", "outer": "other=vec2"},
    "NativeBatchNormBackward0": {"batch_norm_eval": "...", "batch_norm_train": "..."},
    "NativeGroupNormBackward0": {"group_norm": "group=num_groups ..."},
    "NativeLayerNormBackward0": {"layer_norm": "..."},
    "NllLossBackward0": {"nll_loss": "...", "cross_entropy": "target weight ignore_index reduction"},
    "NllLoss2DBackward0": {"nll_loss": "..."},
    "PreluKernelBackward0": {"prelu": "..."},
    "FusedRmsNormBackward0": {"rms_norm": "..."},
    "RepeatBackward0": {"tile": "..."},
    "PowBackward0": {"square": "self=input"},
    "ReflectionPad1DBackward0": {"pad": "padding=pad ..."},
    "ReflectionPad2DBackward0": {"pad": "padding=pad ..."},
    "ReflectionPad3DBackward0": {"pad": "padding=pad ..."},
    "ReplicationPad1DBackward0": {"pad": "padding=pad ..."},
    "ReplicationPad2DBackward0": {"pad": "padding=pad ..."},
    "ReplicationPad3DBackward0": {"pad": "padding=pad ..."},
    "ScaledDotProductFlashAttentionForCpuBackward0": {"sdpa_core": "output=.0 logsumexp=+0 ..."},
    "SelectBackward0": {"basic_index": ""},
    "SliceBackward0": {"basic_index": "", "narrow": "..."},
    "SortBackward0": {"msort": "indices=+0 ..."},
    "SplitBackward0": {"split": "split_size=split_size_or_sections ...", "chunk": "..."},
    "SplitWithSizesBackward0": {"split": "split_sizes=split_size_or_sections ..."},
    "ToCopyBackward0": {"to_dtype": "..."},
    "ViewBackward0": {"unflatten": "..."},
    **{
        f"Upsample{kind}Backward0": {"upsample": "output_size=size ..."}
        for kind in ("Bicubic2D", "Bilinear2D", "Linear1D", "Trilinear3D", *[f"Nearest{e}{n}D" for e in ("", "Exact") for n in (1, 2, 3)])
    },
}  # fmt: skip


_SPELLED = re.compile(r"^(linalg|special|fft)|(ex|withindices)$")  # what only one of the two names has


@cache
def _own(node: str, operator: str) -> bool:
    """Whether the node has the operator's own name, up to spelling."""
    stem = re.sub(r"Backward\d.*$", "", node).lower()
    spelled = re.sub(r"_(core|with_indices)$", "", operator).replace("_", "")
    return bool(re.sub(_SPELLED, "", stem) == re.sub(_SPELLED, "", spelled))


@cache
def _renamed(node: str, operator: str) -> dict[str, str] | None:
    """The map from a node's attributes to the operator's arguments; "" if it is not known, None if the names are equal."""
    text = _RENAMED.get(node, {}).get(operator)
    if text is None:
        return None if _own(node, operator) else {"": ""}
    pairs = {part.split("=")[0]: part.split("=")[-1] for part in text.split() if part != "..."}
    return pairs if "..." in text.split() else {**pairs, "": ""}


class SavedCall:
    """The call of a node, from which the values of its attributes come."""

    def __init__(self, info: Any) -> None:
        self.info = info
        self.op, self.template, self.specs = info.origin
        self.node = info.cls.__name__
        self.renamed = (_renamed(self.node, self.op.schema.name) if self.node in _nodes() else None) or {}
        self.tensors: list[tuple[str, int]] = []  # the arguments that the tensors are
        numbers: list[tuple[str, int]] = []
        self.lists: set[str] = set()
        for argument, item in zip(self.op.schema.arguments, self.template, strict=True):
            if isinstance(item, Slot):
                (self.tensors if item.kind in ("tensor", "list") else numbers).extend(
                    [(argument.name, i) for i in range(item.count)]
                )
                if item.kind == "list":
                    self.lists.add(argument.name)
        self.inputs = [*self.tensors, *numbers]
        self._all: Sequence[tuple[str, int]] | None = None

    def source(self, name: str) -> str:
        """The operator's name for the node's attribute `name`; KeyError if it is not known."""
        found, arguments = self.renamed.get(name), self.op.schema.arguments
        if found is not None and (found[0] in ".+" or any(a.name == found for a in arguments)):
            return found
        if "" in self.renamed:
            raise KeyError(name)
        if name == "self" and arguments[0].base == "Tensor" and arguments[0].name in ("input", "A", "x"):
            return str(arguments[0].name)
        return name

    def places(self, name: str, sources: Sequence[tuple[str, int]] | None = None) -> list[int]:
        """Where the tensors called `name` are among the saved values, or among those of `sources`."""
        try:
            word = self.source(name)
        except KeyError:
            return []
        wanted = self._wanted(word)
        return [
            k for k, source in enumerate(self.info.sources if sources is None else sources) if tuple(source) in wanted
        ]

    def _wanted(self, word: str) -> set[tuple[str, int]]:
        if word[:1] in (".", "+"):
            return {("output" if word[0] == "." else "residual", int(word[1:]))}
        found = {("input", k) for k, (argument, _) in enumerate(self.inputs) if argument == word}
        number = self.result(word)
        return found if found or number is None else {("output", number)}

    def result(self, word: str) -> int | None:
        """The number of the result of this name."""
        results = self.op.schema.results
        if word in results:
            return int(results.index(word))
        if word == "result":
            return 0 if len(results) == 1 else None
        match = re.fullmatch(r"result(\d)", word)
        return int(match[1]) if match is not None and int(match[1]) < len(results) else None

    def spec(self, word: str) -> Any:
        """The spec of a tensor argument or of a result, by the operator's word for it; KeyError where there is none."""
        at = next((k for k, (argument, _) in enumerate(self.tensors) if argument == word), None)
        if at is not None:
            return self.specs[at]
        number = int(word[1:]) if word[:1] == "." else self.result(word)
        if number is None:
            raise KeyError(word)
        return self.info.out_specs[number]

    def argument(self, word: str) -> Any:
        """An argument that is no tensor; KeyError where there is none, or where its value was not kept."""
        for argument, item in zip(self.op.schema.arguments, self.template, strict=True):
            if argument.name == word and not isinstance(item, Slot):
                value = item.value if isinstance(item, Literal) else item
                return (value,) if argument.base == "int" and argument.is_sequence and type(value) is int else value
        raise KeyError(word)

    def would_keep(self, name: str) -> bool:
        """Whether the tensor is kept if all arguments want gradients; then its value here is None because it is not
        needed.
        """
        if self._all is None:
            self._all = self._all_sources()
        return bool(self.places(name, self._all))

    def _all_sources(self) -> Sequence[tuple[str, int]]:
        specs, template, rest = [], [], iter(self.specs)
        for argument, item in zip(self.op.schema.arguments, self.template, strict=True):
            if isinstance(item, Slot) and item.kind in ("tensor", "list"):
                specs += [next(rest) for _ in range(item.count)]
            elif isinstance(item, Slot) and argument.base == "Tensor" and self.specs:  # a number in place of a tensor
                specs.append(Spec.of(self.specs[0].dtype, self.specs[0].device, ()))
                item = Slot("tensor")
            template.append(item)
        wrt = [k for k, spec in enumerate(specs) if spec.dtype.is_floating_point or spec.dtype.is_complex]
        try:
            return differentiate(self.op, template, specs, wrt, self.info.mask).saved
        except (NotDifferentiableError, OperandError, NotImplementedError, RuntimeError, TypeError):
            return ()

    def fact(self, name: str) -> Any:
        """An attribute that is no tensor; KeyError if it is not known.  Ints are unsigned, as PyTorch shows them: dim
        -1 is 2**64 - 1.
        """
        rule = _COMPUTED.get(self.node, {}).get(name)
        if rule is not None:
            value = rule(self)
            return value if name == "correction" else unsigned(value)
        match = _FACT.fullmatch(name)
        if match is not None:
            try:
                return _FACTS[match[2]](self.spec(self.source(match[1])), int(match[3] or 0))
            except KeyError:
                pass
        value = self.argument(self.source(name))
        if name == "reduction":
            return _REDUCTIONS.get(value, value)
        return unsigned(value)


def unsigned(value: Any) -> Any:
    """Ints as unsigned 64-bit numbers."""
    if type(value) is int:
        return value % 2**64
    return tuple([unsigned(v) for v in value]) if type(value) is tuple else value


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_FACT = re.compile(
    r"(\w+?)_(sym_sizes|sym_sizes_opt|sym_strides|sym_numel|scalar_type|dim|sym_argsize_|sym_argsize_minus_)(\d*)"
)
_FACTS: dict[str, Callable[[Spec, int], Any]] = {
    "sym_sizes": lambda spec, _: tuple(spec.shape),
    "sym_sizes_opt": lambda spec, _: tuple(spec.shape),
    "sym_strides": lambda spec, _: tuple(spec.strides),
    "sym_numel": lambda spec, _: spec.numel,
    "scalar_type": lambda spec, _: spec.dtype,
    "dim": lambda spec, _: spec.ndim,
    "sym_argsize_": lambda spec, number: spec.shape[number],
    "sym_argsize_minus_": lambda spec, number: spec.shape[-number],
}


# ***** facts that follow from the call by a rule of their own *****


def _shape(call: SavedCall, word: str = "input") -> tuple[int, ...]:
    return tuple(call.spec(word).shape)


def _padding(call: SavedCall) -> Any:
    """The padding of a convolution as numbers; it may be given as a word."""
    padding, kernel = call.argument("padding"), _shape(call, "weight")[2:]
    if padding == "valid":
        return (0,)
    if padding == "same":
        ends = [d * (k - 1) for d, k in zip(call.argument("dilation"), kernel, strict=True)]
        if any(e % 2 for e in ends):  # then PyTorch pads on one side first
            raise KeyError("padding")
        return tuple([e // 2 for e in ends])
    return (padding,) * len(kernel) if type(padding) is int else padding


def _output_padding(call: SavedCall) -> Any:
    if "transpose" in call.op.schema.name:
        return call.argument("output_padding")
    return (0,) * (1 if call.argument("padding") == "valid" else call.spec("weight").ndim - 2)


def _bias_sizes(call: SavedCall) -> Any:
    try:
        return _shape(call, "bias")
    except KeyError:
        return (0,)


def _joined_dim(call: SavedCall) -> int:
    kind = call.op.schema.name
    if kind == "hstack":
        return int(len(call.specs[0].shape) > 1)
    return {"column_stack": 1, "dstack": 2, "vstack": 0}[kind] if kind != "cat" else call.argument("dim")


def _last_item(call: SavedCall) -> tuple[int, Any, tuple[int, ...]]:
    """`x[index]` is one view per item in PyTorch: the dim of the last view, its item, and the shape before it."""
    shape, dim, found = list(_shape(call)), 0, None
    for item in call.argument("index"):
        if item[0] == "n":
            shape.insert(dim, 1)
            dim, found = dim + 1, None
            continue
        before = tuple(shape)
        if item[0] == "i":
            found = dim, item, before
            del shape[dim]
            continue
        if item[1] is not None:
            start, stop, step = item[1:]
            if (start, step) != (0, 1) or stop < shape[dim]:
                found = dim, item, before
            shape[dim] = max(0, -(-(stop - start) // step))
        dim += 1
    if found is None:
        raise KeyError("index")
    return found


def _of_item(call: SavedCall, name: str) -> Any:
    """A fact of a slice or a selection."""
    if call.op.schema.name in ("slice", "select", "narrow"):
        if call.op.schema.name == "narrow":
            return _narrowed(call, name)
        return _shape(call) if name == "self_sym_sizes" else call.argument(name)
    dim, item, shape = _last_item(call) if call.op.schema.name == "basic_index" else _missing(name)
    if name in ("start", "end"):
        # PyTorch shows the bounds as they were written, and the call has them inside of the tensor
        raise KeyError(name)
    return {"dim": dim, "self_sym_sizes": shape, "index": item[1], "step": item[-1]}[name]


def _missing(name: str) -> Any:
    raise KeyError(name)


def _narrowed(call: SavedCall, name: str) -> Any:
    dim, start, length = call.argument("dim"), call.argument("start"), call.argument("length")
    start = start + _shape(call)[dim] if start < 0 else start
    return {"dim": dim, "start": start, "end": start + length, "step": 1, "self_sym_sizes": _shape(call)}[name]


def _dims(call: SavedCall) -> Any:
    if call.op.schema.name != "movedim":
        return call.argument("dims")
    ndim = len(_shape(call))
    goes = {d % ndim: s % ndim for s, d in zip(call.argument("source"), call.argument("destination"), strict=True)}
    rest = iter([d for d in range(ndim) if d not in goes.values()])
    return tuple([goes[d] if d in goes else next(rest) for d in range(ndim)])


def _flipped(call: SavedCall) -> Any:
    return {"fliplr": (1,), "flipud": (0,)}.get(call.op.schema.name) or call.argument("dims")


def _repeats(call: SavedCall) -> Any:
    if call.op.schema.name != "tile":
        return call.argument("repeats")
    dims = call.argument("dims")
    return (1,) * (len(_shape(call)) - len(dims)) + tuple(dims)


def _split_size(call: SavedCall) -> Any:
    if call.op.schema.name != "chunk":
        return call.argument("split_size_or_sections")
    return -(-_shape(call)[call.argument("dim")] // call.argument("chunks"))


def _squeezed(call: SavedCall) -> Any:
    if call.op.schema.name != "squeeze":
        return -2
    dim = call.argument("dim")
    return dim[0] if call.node == "SqueezeBackward1" else dim


def _before_squeeze(call: SavedCall) -> Any:
    """The input shape of PyTorch's `squeeze`: one-dimensional pooling is two-dimensional pooling with one row there."""
    if call.op.schema.name == "squeeze":
        return _shape(call)
    out = tuple(call.info.out_specs[0].shape)
    return (*out[:-1], 1, out[-1])


def _elu(name: str) -> Callable[[SavedCall], Any]:
    """The three factors of PyTorch's `elu`, which `selu` and `celu` set."""
    known = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946, "input_scale": 1}

    def of(call: SavedCall) -> Any:
        if call.op.schema.name == "selu":
            return known[name]
        return call.argument(name) if name == "alpha" else 1

    return of


def _choice(word: str, *words: str) -> Callable[[SavedCall], Any]:
    """The number that PyTorch's nodes show for a choice given as a word."""

    def of(call: SavedCall) -> Any:
        value = call.argument(call.source(word))
        return words.index(value) if isinstance(value, str) else value

    return of


def _correction(call: SavedCall) -> Any:
    value = call.argument("correction")
    if value is None:
        # Whether `unbiased` was passed is not kept; PyTorch shows a difference.
        return 0 if not call.argument("unbiased") else _missing("correction")
    return int(value) if value == int(value) else value


def _alpha(call: SavedCall) -> Any:
    return call.argument("alpha") if _own(call.node, call.op.schema.name) else 1


def _bound(name: str, value: float) -> Callable[[SavedCall], Any]:
    return lambda call: value if call.op.schema.name == "relu6" else call.argument(name)


def _linear_rows(call: SavedCall) -> Any:
    """The shape of the product of `linear` before it gets the dims of the input."""
    if call.op.schema.name != "linear":
        return _missing("self") if call.op.schema.name not in ("view", "unflatten") else _shape(call)
    out = tuple(call.info.out_specs[0].shape)
    return prod(out[:-1]), out[-1]


def _pools_stride(call: SavedCall) -> Any:
    stride = call.argument("stride")
    return () if stride is None else stride


def _group_sizes(call: SavedCall) -> tuple[int, int, int]:
    shape = _shape(call)
    return shape[0], shape[1], prod(shape[2:])


def _weight_strides(call: SavedCall) -> Any:
    """Strides of the second matrix; for `linear` it is the transposed weight."""
    if call.op.schema.name == "linear":
        return tuple(call.spec("weight").strides[::-1])
    return tuple(call.spec(call.source("mat2")).strides)


def _weight_sizes(call: SavedCall) -> Any:
    if call.op.schema.name == "linear":
        return _shape(call, "weight")[::-1]
    return _shape(call, call.source("mat2"))


def _scalars(call: SavedCall, name: str) -> Any:
    return 1 if call.op.schema.name == "linear" else call.argument(name)


def _like_slices(*names: str) -> dict[str, Callable[[SavedCall], Any]]:
    return {n: lambda call, n=n: _of_item(call, n) for n in names}  # type: ignore[misc]


_MAT2: dict[str, Callable[[SavedCall], Any]] = {"mat2_sym_sizes": _weight_sizes, "mat2_sym_strides": _weight_strides}
_POOLS = {
    f"{kind}Pool{n}D{tail}Backward0": {"stride": _pools_stride}
    for kind, tail in (("Avg", ""), ("Max", "WithIndices"))
    for n in (2, 3)
}
_GRID = {
    "interpolation_mode": _choice("interpolation_mode", "bilinear", "nearest", "bicubic"),
    "padding_mode": _choice("padding_mode", "zeros", "border", "reflection"),
}
_COMPUTED: dict[str, dict[str, Callable[[SavedCall], Any]]] = {
    **_POOLS,
    "AddBackward0": {"alpha": _alpha},
    "AddmmBackward0": {**_MAT2, "alpha": lambda call: _scalars(call, "alpha"), "beta": lambda call: _scalars(call, "beta")},
    "CatBackward0": {"dim": _joined_dim},
    "ConvolutionBackward0": {
        "bias_sym_sizes_opt": _bias_sizes, "output_padding": _output_padding, "padding": _padding, "transposed": lambda call: "transpose" in call.op.schema.name,
    },
    "DiagEmbedBackward0": {
        "dim1": lambda call: call.argument("dim1") if call.op.schema.name == "diag_embed" else -2,
        "dim2": lambda call: call.argument("dim2") if call.op.schema.name == "diag_embed" else -1,
    },
    "DiagonalBackward0_copy": {"dim1": lambda call: 0, "dim2": lambda call: 1},
    "EluBackward0": {name: _elu(name) for name in ("alpha", "scale", "input_scale")},
    "EmbeddingBagBackward0": {"mode": _choice("mode", "sum", "mean", "max")},
    "FftC2CBackward0": {"forward": lambda call: not call.argument("inverse"), "normalization": _choice("norm", "none", "ortho", "mean")},
    "FftC2RBackward0": {"normalization": _choice("norm", "none", "ortho", "mean")},
    "FftR2CBackward0": {"normalization": _choice("norm", "none", "ortho", "mean"), "onesided": lambda call: True},
    "FlipBackward0": {"dims": _flipped},
    "GatherBackward0": {"dim": lambda call: call.argument("dim") or 0, "sparse_grad": lambda call: call.op.schema.name == "gather" and call.argument("sparse_grad")},
    "GridSampler2DBackward0": _GRID,
    "GridSampler3DBackward0": _GRID,
    "HardtanhBackward0": {"min_val": _bound("min_val", 0), "max_val": _bound("max_val", 6)},
    "LinalgLuSolveBackward0": {
        "left": lambda call: call.argument("left") if call.op.schema.arguments[0].name == "LU" else True,
        "adjoint": lambda call: call.argument("adjoint") if call.op.schema.arguments[0].name == "LU" else False,
    },
    "LinalgQrBackward0": {"mode": lambda call: call.argument("mode") if call.op.schema.arguments[1].name == "mode" else "reduced" if call.argument("some") else "complete"},
    "MmBackward0": _MAT2,
    "NativeBatchNormBackward0": {"training": lambda call: call.op.schema.name != "batch_norm_eval"},
    "NativeGroupNormBackward0": {
        "N": lambda call: _group_sizes(call)[0], "C": lambda call: _group_sizes(call)[1], "HxW": lambda call: _group_sizes(call)[2],
    },
    "PermuteBackward0": {"dims": _dims},
    "PowBackward0": {"exponent": lambda call: 2 if call.op.schema.name == "square" else call.argument("exponent")},
    "RepeatBackward0": {"repeats": _repeats},
    "ScaledDotProductFlashAttentionForCpuBackward0": {"dropout_p": lambda call: 0.0},
    "SelectBackward0": _like_slices("dim", "index", "self_sym_sizes"),
    "SliceBackward0": _like_slices("dim", "start", "end", "step", "self_sym_sizes"),
    "SortBackward0": {"dim": lambda call: 0 if call.op.schema.name == "msort" else call.argument("dim")},
    "SplitBackward0": {"split_size": _split_size},
    "SqueezeBackward1": {"dim": _squeezed, "self_sym_sizes": _before_squeeze},
    "SqueezeBackward2": {"dim": _squeezed},
    "SubBackward0": {"alpha": _alpha},
    "UnsafeViewBackward0": {"self_sym_sizes": _linear_rows},
    "ViewBackward0": {"self_sym_sizes": _linear_rows},
    **{f"{kind}Backward0": {"correction": _correction} for kind in ("Std", "Var", "StdMean", "VarMean")},
}  # fmt: skip


# ***** tensors that the node shows in another form than we keep *****


Held = Callable[[str], Any]
Shown = Callable[["SavedCall", Held], Any]


def _transposed_weight(call: SavedCall, held: Held) -> Any:
    weight = held("weight") if call.op.schema.name == "linear" else None
    return None if weight is None else weight.t()


def _upper(word: str) -> Shown:
    """The factor of `cholesky` as asked for; the lower one is kept."""

    def of(call: SavedCall, held: Held) -> Any:
        found = held(word)
        return found.mH if found is not None and call.argument("upper") else found

    return of


def _shaped(word: str, shape: Callable[[SavedCall], Sequence[int]]) -> Shown:
    """A kept tensor in the shape that the node shows."""

    def of(call: SavedCall, held: Held) -> Any:
        found = held(word)
        return found if found is None else found.reshape(tuple(shape(call)))

    return of


def _broadcast(word: str) -> Shown:
    """An operand of `cdist` with the batch dims of both."""

    def of(call: SavedCall, held: Held) -> Any:
        found = held(word)
        return found if found is None else found.expand(*call.info.out_specs[0].shape[:-2], *found.shape[-2:])

    return of


def _statistics(shape: Callable[[SavedCall], Sequence[int]]) -> dict[str, Shown]:
    """Mean and 1 / deviation of a normalization, which keeps sums and sums of squares."""

    def mean(call: SavedCall, held: Held) -> Any:
        sums = held("+0")
        return (
            None if sums is None else (sums / (prod(_shape(call)) // max(1, sums.numel()))).reshape(tuple(shape(call)))
        )

    def scale(call: SavedCall, held: Held) -> Any:
        sums = held("+1")
        if sums is None:
            return None
        return (
            (sums / (prod(_shape(call)) // max(1, sums.numel())) + call.argument("eps"))
            .rsqrt()
            .reshape(tuple(shape(call)))
        )

    return {"result1": mean, "result2": scale}


def _beside_rows(call: SavedCall) -> tuple[int, ...]:
    """The shape of the statistics of `layer_norm`."""
    shape, normalized = _shape(call), len(call.argument("normalized_shape"))
    return shape[: len(shape) - normalized] + (1,) * normalized


def _channels(call: SavedCall) -> tuple[int, ...]:
    """The shape of the weight of `prelu` beside its input."""
    ndim, weight = len(_shape(call)), prod(_shape(call, "weight"))
    return tuple([weight if d == 1 else 1 for d in range(ndim)]) if ndim > 1 else (weight,) * ndim


def _padded(call: SavedCall, held: Held) -> Any:
    """The input of a convolution, unless PyTorch pads it first."""
    _padding(call)
    return held("input")


_SHOWN: dict[str, dict[str, Shown]] = {
    "AddmmBackward0": {"mat2": _transposed_weight},
    "CdistBackward0": {"x1": _broadcast("x1"), "x2": _broadcast("x2")},
    "CholeskyBackward0": {"result": _upper("+0")},
    "ConvolutionBackward0": {"input": _padded},
    "EmbeddingBagBackward0": {"indices": _shaped("input", lambda call: (-1,))},
    "KthvalueBackward0": {"indices": _shaped("+0", lambda call: call.info.out_specs[1].shape)},
    "LinalgCholeskyExBackward0": {"L": _upper("+0")},
    "MmBackward0": {"mat2": _transposed_weight},
    "NativeGroupNormBackward0": _statistics(lambda call: (_shape(call)[0], call.argument("num_groups"))),
    "NativeLayerNormBackward0": _statistics(_beside_rows),
    "PreluKernelBackward0": {"weight": _shaped("weight", _channels)},
    "ScaledDotProductFlashAttentionForCpuBackward0": {
        "logsumexp": _shaped("+0", lambda call: _shape(call, "query")[:-1])
    },
}


# ***** what is asked of a node *****


def saved_value(node: Any, name: str) -> Any:
    """The value of `_saved_NAME`."""
    call, tensor = SavedCall(node.info), declared(node.info)[name]
    if not tensor:
        try:
            return call.fact(name)
        except KeyError:
            pass
    found = _kept(node, call, name)
    if found is not None or not tensor:
        return _not_held(node, name) if found is None else found
    try:
        value = call.argument(call.source(name))
        return (
            None
            if value is None
            else _number(value)
            if isinstance(value, bool | int | float | complex)
            else _not_held(node, name)
        )
    except KeyError:
        return None if call.would_keep(name) else _not_held(node, name)


def answered(info: Any) -> list[str]:
    """The names that nodes of this backward spec have a value for."""
    names = declared(info)
    call = SavedCall(info) if names else None
    return [] if call is None else [name for name, tensor in names.items() if _answers(call, name, tensor)]


def _answers(call: SavedCall, name: str, tensor: bool) -> bool:
    shown = _SHOWN.get(call.node, {}).get(name)
    words: list[str] = []
    try:
        if not tensor:
            call.fact(name)
            return True
        if shown is not None:
            shown(call, words.append)
        elif not call.places(name):
            return call.argument(call.source(name)) is None or isinstance(
                call.argument(call.source(name)), int | float | complex
            )
    except KeyError:
        return not shown and (bool(call.places(name)) or (tensor and call.would_keep(name)))
    wanted = {source for word in words for source in call._wanted(word)}
    return (
        bool(call.places(name)) or any(tuple(source) in wanted for source in call.info.sources) or call.would_keep(name)
    )


def _kept(node: Any, call: SavedCall, name: str) -> Any:
    """The tensor that the node keeps under this name, or the tuple of them; None where there is none."""
    held: Any = None if node.saved is None else node._unpack(node.saved)

    def value(word: str) -> Any:
        wanted = call._wanted(word)
        places = [k for k, source in enumerate(call.info.sources) if tuple(source) in wanted]
        if places and held is None:
            node._refuse()
        return held[places[0]] if places else None

    shown = _SHOWN.get(call.node, {}).get(name)
    if shown is not None:
        try:
            found = shown(call, value)
        except KeyError:
            return _not_held(node, name)
        if found is not None:
            return found
    places = call.places(name)
    if not places:
        return None
    if held is None:
        node._refuse()
    values = [
        _number(held[k]) if declared(call.info)[name] and not isinstance(held[k], Tensor) else held[k] for k in places
    ]
    return _listed(call, values) if call.source(name) in call.lists else values[0]


def _listed(call: SavedCall, values: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors of a list: of indices with None for the dims before that have none."""
    if "indices" not in call.lists:
        return tuple(values)
    at = dict(zip(call.argument("dims"), values, strict=True))
    return tuple([at.get(d) for d in range(max(at) + 1)])


def _number(value: Any) -> Tensor:
    """A Python number as PyTorch keeps it in place of a tensor."""
    return tensor(value, dtype=FLOAT64 if type(value) is float else COMPLEX128 if type(value) is complex else None)


def _not_held(node: Any, name: str) -> Any:
    raise AttributeError(
        f"'{type(node).__name__}' object does not hold '_saved_{name}' here: its gradient is computed without it"
    )


def saved_handle(node: Any, name: str, handle: Callable[[int], Any]) -> Any:
    """The value of `_raw_saved_NAME`: `handle` makes it from the index of a saved tensor."""
    call = SavedCall(node.info)
    places = call.places(name)
    if not places:
        return _not_held(node, name)
    handles = [handle(k) for k in places]
    return _listed(call, handles) if call.source(name) in call.lists else handles[0]
