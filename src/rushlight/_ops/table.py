"""The operator table: declarations of operators.

    @operator("gelu(Tensor input, *, str approximate='none') -> Tensor", promote="float", spaces=("nn.functional",), method=False)
    def gelu(x, *, approximate):
        ...                       # a body over primitives and values; see `_prims/build.py` for broadcasting helpers

    @gelu.gradient                # only where the derived one is not good enough; a test compares the two
    def _(ct, out, x, *, approximate):
        ...

Everything else (shapes, kernels, gradients, method, in-place and `out=` forms, stubs, pages) is derived from that.

Arguments of a body: for `Tensor` a traced value, already converted to the dtype of `promote` (float16 and bfloat16 are
computed in float32 and rounded at the end, as PyTorch does); for `Tensor?` a value or None; for `Tensor[]` a list of
values; for `Scalar` a weak value (the number is an argument of the kernel, not part of its code) unless it is listed in
`static`; for every other type the plain Python value, ints wrapped in tuples if the type is a list.  Positional
arguments come positionally, keyword-only ones by keyword.  A body may raise (RuntimeError, IndexError, ...) exactly
what PyTorch raises.  It returns one value, or a tuple as in the schema; further values after those are residuals:
computed only when a gradient is recorded, and passed to the hand-written gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._ops.schema import Schema, parse_schema

if TYPE_CHECKING:
    from rushlight._types.layout import Cut

__all__ = ["OPERATORS", "Operator", "operator", "view"]

OPERATORS: dict[str, Operator] = {}


class Operator:
    """One row of the table.

    - `promote`: None (bodies see the given dtypes), "same" (all to their common dtype), "float" (the same, but integers
      and bool become the default float), "opmath" (no promotion among arguments, but half types are computed in
      float32).
    - `promote_over`: names of the arguments that take part in promotion; default all `Tensor` and `Scalar` arguments.
    - `like`: layout of the results: "operands" (PyTorch's TensorIterator rule: memory order of the operands), "image"
      (channels last if the first tensor is), "contiguous", or a function of the result's shape and the operands' specs.
    - `spaces`: the namespaces of the function: "torch", "nn.functional", "linalg", "special", ...
    - `method`, `inplace`, `out`: the other forms that exist; `out="exact"` means that the dtype of `out` must be the
      result's (else it may be any that the result can be cast to), "truth" that it must be bool or uint8, "dim" that
      only the form with a `dim` takes one; `inplace` is the in-place method (`relu_`), also present in the spaces where
      PyTorch has it (`inplace_spaces`).
    - `node`: name of the backward node, e.g. "GeluBackward0"; derived from the name by default.  It may be a function
      of the call's arguments by name (a tensor as its spec), because overloads of one name have different nodes; see
      `node_name`.
    - `aliases`: other names of the same function, in the same spaces and with the same method and in-place forms
      ("absolute"); one with a dot is in that space alone and is no method ("special.expit").
    - `numbers`: the `Tensor` arguments that may be a Python number; the body then gets a weak value, or the plain
      number if the argument is listed in `static`.
    - `strides`: of a view whose primitives leave strides of dims with fewer than two elements open: a function from the
      input's spec and the other arguments to the strides of the result.
    - `cut`: of a view in several parts: a function from the input's spec, or its value, and the other arguments to the
      `Cut` that gives these parts.
    - `underivable`: the reason why the operator has no derivative at all, in either mode, whatever its body; PyTorch
      has none for it either.
    - `constants`: arguments without a derivative, for which none may be requested (RuntimeError); `choosing`: arguments
      that only select among the others, so that a result does not require a gradient for their sake.
    - `kind`: "graph" or "view".
    - `tags`, among others: "sized" if the integers of a call are sizes, as its tensors' are: calls that differ in these
      are of one shape class (`_engine.dispatch.plans.shape_classes`); "aligned" if operands get the same number of dims
      before they are combined: one without dims is promoted like the others.

    `public` is the name that users write; `name` is the key in `OPERATORS`, and differs if two spaces use one public
    name.  An argument that was not given, or equals its default, stays in the call as that literal, so that a body can
    leave out `alpha * x` when alpha is 1.
    """

    promote: str | None = None
    promote_over: tuple[str, ...] | None = None
    schema: Schema
    like: str
    spaces: tuple[str, ...] = ("torch",)
    method: bool | str = True
    inplace: bool = False
    inplace_spaces: tuple[str, ...]
    out: bool | str = False
    static: tuple[str, ...] = ()
    strides: Callable[..., list[int]] | None = None
    cut: Callable[..., Cut] | None = None
    node: str | Callable[..., str]
    aliases: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    limits: str = ""
    samples: Callable[[], Any] | None = None
    gradient_rule: Callable[..., Any] | None = None
    underivable: str = ""
    constants: tuple[str, ...] = ()
    choosing: tuple[str, ...] = ()
    doc: str | None

    def __init__(self, signature: str, body: Callable[..., Any], kind: str, options: dict[str, Any]) -> None:
        self.signature, self.body, self.kind = signature, body, kind
        self.public = signature[: signature.index("(")].strip()
        self.name: str = self.public
        if not options.keys() <= _OPTIONS:
            raise TypeError(f"operator {self.public!r}: unknown options {sorted(options.keys() - _OPTIONS)}")
        self.__dict__.update(options)
        if self.promote not in _PROMOTIONS:
            raise ValueError(f"operator {self.name!r}: unknown promotion {self.promote!r}")
        if self.name in OPERATORS:
            raise ValueError(f"operator {self.name!r} is declared twice")
        OPERATORS[self.name] = self

    def __getattr__(self, name: str) -> Any:
        """Derived attributes, computed on first use: an import declares hundreds of rows and uses none."""
        if name not in _DERIVED:
            raise AttributeError(f"an operator has no {name!r}")
        value = self.__dict__[name] = _DERIVED[name](self)
        return value

    def gradient(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Attach a hand-written gradient: `rule(cts, outs, *inputs, **keywords)` -> one cotangent (or None) per
        declared tensor argument, also for those that may be None or a number.

        `cts` and `outs` are single values for one result and no residuals, else tuples (a result without a cotangent
        has None); `inputs` are the body's arguments.  For `Tensor[]` arguments the cotangents are flat, in the order of
        the tensors.
        """
        self.gradient_rule = rule
        return rule

    def node_name(self, arguments: dict[str, Any], inplace: bool = False) -> str:
        """The backward node's name for a call with these arguments (by name, tensors as specs, numbers as anything)."""
        name = self.node if isinstance(self.node, str) else self.node(**arguments)
        return name[:-1] + "1" if inplace and self.name in _OTHER_IN_PLACE else name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the body: this is how one operator's body uses another's (values in, values out)."""
        return self.body(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Operator({self.signature})"


_OPTIONS = frozenset((
    "aliases", "choosing", "constants", "cut", "doc", "inplace", "inplace_spaces", "like", "limits", "method", "name", "node", "numbers", "out", "promote", "promote_over",
    "samples", "spaces", "static", "strides", "tags", "underivable",
))  # fmt: skip
# Operators whose in-place form PyTorch differentiates by another formula, from its result: the node has another number.
_OTHER_IN_PLACE = frozenset(
    ("acosh", "asinh", "atanh", "celu", "conj_physical", "elu", "leaky_relu", "selu", "threshold")
)
_PROMOTIONS = (None, "same", "float", "opmath")
_DERIVED: dict[str, Callable[[Operator], Any]] = {
    "schema": lambda op: parse_schema(op.signature),
    "doc": lambda op: op.body.__doc__,
    "like": lambda op: "operands" if op.promote in ("same", "float") else "contiguous",
    "inplace_spaces": lambda op: op.spaces,
    "node": lambda op: default_node_name(op.name),
}


def default_node_name(name: str) -> str:
    """`log_softmax` -> `LogSoftmaxBackward0`."""
    return "".join(part.title() for part in name.strip("_").split("_")) + "Backward0"


def operator(schema: str, **options: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator over primitives; see the module's docstring and `Operator` for the options."""

    def declare(body: Callable[..., Any]) -> Operator:
        return Operator(schema, body, "graph", options)

    return declare


def view(schema: str, **options: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Declare a view operator: the body uses only primitives with a layout rule; its results share the input's memory."""

    def declare(body: Callable[..., Any]) -> Operator:
        return Operator(schema, body, "view", options)

    return declare
