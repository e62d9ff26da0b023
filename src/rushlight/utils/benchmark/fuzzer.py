"""Random sizes and layouts of tensors, to time operators over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import numpy as np

__all__ = ["FuzzedParameter", "FuzzedSparseTensor", "FuzzedTensor", "Fuzzer", "ParameterAlias"]


class FuzzedParameter:
    """A number (or what else a choice gives) that is drawn anew for every step.

    `distribution` is "uniform" (whole numbers where both bounds are, both ends included), "loguniform" (as likely
    between 1 and 10 as between 10 and 100), or a dict of choices with their probabilities, which takes no bounds.  A
    `strict` one is not drawn again when other parameters are rejected.
    """

    def __init__(
        self,
        name: str,
        minval: float | None = None,
        maxval: float | None = None,
        distribution: Any = None,
        strict: bool = False,
    ) -> None:
        self._name, self._minval, self._maxval, self.strict = name, minval, maxval, strict
        self._distribution = distribution
        if isinstance(distribution, dict):
            if any(p < 0 for p in distribution.values()):
                raise AssertionError("Probabilities cannot be negative")
            if abs(sum(distribution.values()) - 1) > 1e-5:
                raise AssertionError("Distribution is not normalized")
            if minval is not None or maxval is not None:
                raise AssertionError("When passing a custom distribution, 'minval' and 'maxval' must be None")
        elif distribution not in ("loguniform", "uniform"):
            raise AssertionError(f"Unknown distribution: {distribution}")

    @property
    def name(self) -> str:
        """Its name for tensors."""
        return self._name

    def sample(self, state: Any) -> Any:
        """A value, drawn by a NumPy `RandomState`."""
        low, high = self._minval, self._maxval
        if isinstance(self._distribution, dict):
            choices = list(self._distribution)
            return choices[state.choice(np.arange(len(choices)), p=tuple(self._distribution.values()))]
        if low is None or high is None:
            raise AssertionError(
                f"FuzzedParameter {self._name!r}: a {self._distribution} distribution needs minval and maxval"
            )
        if self._distribution == "loguniform":
            return min(max(int(2 ** state.uniform(low=math.log2(low), high=math.log2(high))), low), high)
        if isinstance(low, int) and isinstance(high, int):
            return int(state.randint(low=low, high=high + 1))
        return state.uniform(low=low, high=high)


class ParameterAlias:
    """In a choice: the value of another parameter."""

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


def _exceeds(left: Any, right: Any) -> bool:
    return left is not None and right is not None and left > right


class FuzzedTensor:
    """A tensor whose sizes are numbers or names of parameters.

    `steps` are strides by which a larger tensor is cut; with `probability_contiguous` its dims lie in memory in their
    order, else in a random one.  `dim_parameter` names the number of dims to use.  Sizes outside of `min_elements`,
    `max_elements`, `max_allocation_bytes` are drawn again.  `tensor_constructor(size, dtype, **parameters)` makes
    another tensor than uniform numbers.
    """

    def __init__(
        self,
        name: str,
        size: Sequence[Any],
        steps: Sequence[Any] | None = None,
        probability_contiguous: float = 0.5,
        min_elements: int | None = None,
        max_elements: int | None = None,
        max_allocation_bytes: int | None = None,
        dim_parameter: str | None = None,
        roll_parameter: str | None = None,
        dtype: Any = rushlight.float32,
        cuda: bool = False,
        tensor_constructor: Callable[..., Tensor] | None = None,
    ) -> None:
        if cuda:
            raise NotImplementedError(f"{type(self).__name__}(cuda=True): rushlight has no GPU")
        self._name, self._size, self._steps = name, tuple(size), tuple(steps or ())
        self._probability_contiguous, self._dim_parameter, self._dtype = probability_contiguous, dim_parameter, dtype
        self._min_elements, self._max_elements, self._max_bytes = min_elements, max_elements, max_allocation_bytes
        self._constructor = tensor_constructor or self.default_tensor_constructor

    @property
    def name(self) -> str:
        """Its name in the result."""
        return self._name

    @staticmethod
    def default_tensor_constructor(size: Any, dtype: Any, **kwargs: Any) -> Tensor:
        """Uniform numbers: in [0, 1) for floating ones, else from 1 to 126."""
        if dtype.is_floating_point or dtype.is_complex:
            return rushlight.rand(size, dtype=dtype)
        return rushlight.randint(1, 127, size, dtype=dtype)

    def _sizes(self, params: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Sizes, steps, and the sizes of what must be allocated."""
        dims = params[self._dim_parameter] if self._dim_parameter is not None else len(self._size)

        def resolved(values: Sequence[Any]) -> tuple[int, ...]:
            return tuple([*[params.get(v, v) for v in values], *[1] * dims][:dims])

        size, steps = resolved(self._size), resolved(self._steps)
        return size, steps, tuple(n * s for n, s in zip(size, steps, strict=True))

    def _make_tensor(self, params: dict[str, Any], state: Any) -> tuple[Tensor, dict[str, Any]]:
        size, steps, allocated = self._sizes(params)
        raw = self._constructor(size=allocated, dtype=self._dtype, **params)
        order = np.arange(len(size))
        if state.rand() > self._probability_contiguous:
            while len(size) > 1 and np.all(order == np.arange(len(size))):
                order = state.permutation(raw.dim())
            inverse = [int(i) for i in np.argsort(order)]
            raw = raw.permute([int(i) for i in order]).contiguous().permute(inverse)
        made = raw[tuple(slice(0, n * s, s) for n, s in zip(size, steps, strict=True))]
        return made, {
            "numel": made.numel(),
            "order": order,
            "steps": steps,
            "is_contiguous": made.is_contiguous(),
            "dtype": str(self._dtype),
        }

    def satisfies_constraints(self, params: dict[str, Any]) -> bool:
        """Whether the tensor of these parameters is neither too small nor too large."""
        size, _, allocated = self._sizes(params)
        count, nbytes = math.prod(size), math.prod(allocated) * self._dtype.itemsize
        return not (
            _exceeds(count, self._max_elements)
            or _exceeds(self._min_elements, count)
            or _exceeds(nbytes, self._max_bytes)
        )


class FuzzedSparseTensor(FuzzedTensor):
    """A sparse COO tensor; the parameters `density`, `coalesced` and (with `sparse_dim`) `sparse_dim` say what it is
    like.
    """

    def __init__(
        self,
        name: str,
        size: Sequence[Any],
        min_elements: int | None = None,
        max_elements: int | None = None,
        dim_parameter: str | None = None,
        sparse_dim: str | None = None,
        nnz: str | None = None,
        density: str | None = None,
        coalesced: str | None = None,
        dtype: Any = rushlight.float32,
        cuda: bool = False,
    ) -> None:
        super().__init__(
            name=name,
            size=size,
            min_elements=min_elements,
            max_elements=max_elements,
            dim_parameter=dim_parameter,
            dtype=dtype,
            cuda=cuda,
        )
        self._density, self._coalesced, self._sparse_dim = density, coalesced, sparse_dim

    @staticmethod
    def sparse_tensor_constructor(size: Any, dtype: Any, sparse_dim: int, nnz: int, is_coalesced: bool) -> Tensor:
        """`nnz` values at random places; one that is not coalesced has every place twice."""
        sizes = [size] * sparse_dim if isinstance(size, (int, float)) else list(size)
        if all(n <= 0 for n in sizes[:sparse_dim]) and nnz != 0:
            raise AssertionError("invalid arguments")
        values = FuzzedTensor.default_tensor_constructor([nnz, *sizes[sparse_dim:]], dtype)
        places = (rushlight.rand(sparse_dim, nnz) * rushlight.tensor(sizes[:sparse_dim]).unsqueeze(1)).to(
            rushlight.int64
        )
        if not is_coalesced:
            values = rushlight.cat([values, rushlight.randn_like(values)], 0)
            places = rushlight.cat([places, places], 1)
        made = rushlight.sparse_coo_tensor(places, values, tuple(sizes))
        return made.coalesce() if is_coalesced else made

    def _make_tensor(self, params: dict[str, Any], state: Any) -> tuple[Tensor, dict[str, Any]]:
        size, _, _ = self._sizes(params)
        density = params["density"]
        nnz = math.ceil(sum(size) * density)
        if nnz > sum(size):
            raise AssertionError("nnz cannot exceed total number of elements")
        sparse_dim = min(params["sparse_dim"] if self._sparse_dim else len(size), len(size))
        made = self.sparse_tensor_constructor(size, self._dtype, sparse_dim, nnz, params["coalesced"])
        return made, {
            "numel": made.numel(),
            "shape": made.size(),
            "is_coalesced": made.is_coalesced(),
            "density": density,
            "sparsity": 1.0 - density,
            "sparse_dim": made.sparse_dim(),
            "dense_dim": made.dense_dim(),
            "is_hybrid": len(size) > sparse_dim,
            "dtype": str(self._dtype),
        }


class Fuzzer:
    """Draws parameters and makes tensors from them.

    `parameters` and `tensors` may hold lists of them; `constraints` are functions of the parameters (by name), one of
    which that returns False rejects them all.  A seed makes the draws the same each time.

        >>> from rushlight.utils.benchmark import FuzzedParameter, FuzzedTensor, Fuzzer
        >>> fuzzer = Fuzzer([FuzzedParameter("n", 2, 8, "uniform")], [FuzzedTensor("x", size=("n", 3))], seed=0)
        >>> [tuple(tensors["x"].shape) == (params["n"], 3) for tensors, properties, params in fuzzer.take(2)]
        [True, True]
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        tensors: Sequence[Any],
        constraints: Sequence[Callable[..., bool]] | None = None,
        seed: int | None = None,
    ) -> None:
        self._seed = int(np.random.RandomState().randint(0, 2**32 - 1, dtype=np.int64)) if seed is None else seed
        self._parameters: list[FuzzedParameter] = _flat(parameters, FuzzedParameter)
        self._tensors: list[FuzzedTensor] = _flat(tensors, FuzzedTensor)
        self._constraints = constraints or ()
        self._rejections = self._total_generated = 0
        both = {p.name for p in self._parameters} & {t.name for t in self._tensors}
        if both:
            raise ValueError(f"Duplicate names in parameters and tensors: {both}")

    def take(self, n: int) -> Iterator[tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]]:
        """`n` times (tensors by name, their properties by name, parameters)."""
        state = np.random.RandomState(self._seed)
        rushlight.manual_seed(int(state.randint(low=0, high=2**63, dtype=np.int64)))
        for _ in range(n):
            params = self._generate(state)
            made = {tensor.name: tensor._make_tensor(params, state) for tensor in self._tensors}
            yield {k: v[0] for k, v in made.items()}, {k: v[1] for k, v in made.items()}, params

    @property
    def rejection_rate(self) -> float:
        """The part of all draws that was rejected."""
        return self._rejections / self._total_generated if self._total_generated else 0.0

    def _generate(self, state: Any) -> dict[str, Any]:
        strict: dict[str, Any] = {}
        for _ in range(1000):
            drawn: dict[str, Any] = {}
            for parameter in self._parameters:
                if parameter.strict and parameter.name in strict:
                    drawn[parameter.name] = strict[parameter.name]
                    continue
                drawn[parameter.name] = parameter.sample(state)
                if parameter.strict:
                    strict[parameter.name] = drawn[parameter.name]
            params = self._resolve(drawn)
            self._total_generated += 1
            if all(f(**params) for f in self._constraints) and all(
                t.satisfies_constraints(params) for t in self._tensors
            ):
                return params
            self._rejections += 1
        raise ValueError("Failed to generate a set of valid parameters.")

    @staticmethod
    def _resolve(drawn: dict[str, Any]) -> dict[str, Any]:
        """Aliases replaced by what they lead to; ValueError for one that leads to itself or to nothing."""
        found = {}
        for name, value in drawn.items():
            seen = {name}
            while isinstance(value, ParameterAlias):
                if value.alias_to in seen or value.alias_to not in drawn:
                    raise ValueError(f"cannot resolve the alias of parameter {name!r}: {value}")
                seen.add(value.alias_to)
                value = drawn[value.alias_to]
            found[name] = value
        return found


def _flat(values: Sequence[Any], kind: type) -> list[Any]:
    return [item for value in values for item in ([value] if isinstance(value, kind) else value)]
