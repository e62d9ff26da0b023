"""The description of a backend: patterns, and for each how its inputs and results are observed, fused and trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

__all__ = ["BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType"]


class ObservationType(Enum):
    """Whether the result of a pattern is observed by itself, as its input is, or not at all."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = 0
    OUTPUT_SHARE_OBSERVER_WITH_INPUT = 1
    INPUT_OUTPUT_NOT_OBSERVED = 2


@dataclass
class DTypeWithConstraints:
    """A dtype, and bounds of its integers and scales."""

    dtype: Any = None
    quant_min_lower_bound: Any = None
    quant_max_upper_bound: Any = None
    scale_min_lower_bound: Any = None
    scale_max_upper_bound: Any = None
    scale_exact_match: Any = None
    zero_point_exact_match: Any = None


def _constrained(value: Any) -> DTypeWithConstraints:
    return value if isinstance(value, DTypeWithConstraints) else DTypeWithConstraints(dtype=value)


@dataclass
class DTypeConfig:
    """The dtypes of a pattern's input, result, weight and bias."""

    input_dtype_with_constraints: Any
    output_dtype_with_constraints: Any
    weight_dtype_with_constraints: Any
    bias_dtype: Any
    is_dynamic: Any

    def __init__(
        self,
        input_dtype: Any = None,
        output_dtype: Any = None,
        weight_dtype: Any = None,
        bias_dtype: Any = None,
        is_dynamic: Any = None,
    ) -> None:
        self.input_dtype_with_constraints, self.output_dtype_with_constraints, self.weight_dtype_with_constraints = (
            _constrained(v) for v in (input_dtype, output_dtype, weight_dtype)
        )
        self.bias_dtype, self.is_dynamic = bias_dtype, is_dynamic

    @property
    def input_dtype(self) -> Any:
        """The dtype of the input."""
        return self.input_dtype_with_constraints.dtype

    @property
    def output_dtype(self) -> Any:
        """The dtype of the result."""
        return self.output_dtype_with_constraints.dtype

    @property
    def weight_dtype(self) -> Any:
        """The dtype of the weight."""
        return self.weight_dtype_with_constraints.dtype

    @classmethod
    def from_dict(cls, dtype_config_dict: dict[str, Any]) -> DTypeConfig:
        """The config of a dict as `to_dict` makes it."""
        names = ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype", "is_dynamic")
        return cls(**{name: dtype_config_dict.get(name) for name in names})

    def to_dict(self) -> dict[str, Any]:
        """The config as a dict."""
        held: dict[str, Any] = {
            name: getattr(self, f"{name}_with_constraints") for name in ("input_dtype", "output_dtype", "weight_dtype")
        }
        found = {name: value for name, value in held.items() if any(v is not None for v in asdict(value).values())}
        for name in ("bias_dtype", "is_dynamic"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        return found


class BackendPatternConfig:
    """A pattern: a class of modules, a function, the name of a method, or a tuple of them in the order of calls."""

    def __init__(self, pattern: Any = None) -> None:
        self.pattern = pattern
        self.observation_type = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        self.dtype_configs: list[DTypeConfig] = []
        self.root_module: Any = None
        self.qat_module: Any = None
        self.reference_quantized_module: Any = None
        self.fused_module: Any = None
        self.fuser_method: Any = None
        self._num_tensor_args_to_observation_type: dict[int, ObservationType] = {}
        self._input_type_to_index: dict[str, int] = {}
        self._pattern_complex_format: Any = None

    def __repr__(self) -> str:
        return f"BackendPatternConfig({ {k: v for k, v in self.__dict__.items() if v} })"

    def set_pattern(self, pattern: Any) -> BackendPatternConfig:
        """Another pattern."""
        self.pattern = pattern
        return self

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        """How its result is observed."""
        self.observation_type = observation_type
        return self

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        """A further combination of dtypes."""
        self.dtype_configs.append(dtype_config)
        return self

    def set_dtype_configs(self, dtype_configs: list[DTypeConfig]) -> BackendPatternConfig:
        """The combinations of dtypes."""
        self.dtype_configs = dtype_configs
        return self

    def set_root_module(self, root_module: Any) -> BackendPatternConfig:
        """The class of the module with the weight."""
        self.root_module = root_module
        return self

    def set_qat_module(self, qat_module: Any) -> BackendPatternConfig:
        """The class that is trained."""
        self.qat_module = qat_module
        return self

    def set_reference_quantized_module(self, reference_quantized_module: Any) -> BackendPatternConfig:
        """The class in reference models."""
        self.reference_quantized_module = reference_quantized_module
        return self

    def set_fused_module(self, fused_module: Any) -> BackendPatternConfig:
        """The class that the pattern is fused into."""
        self.fused_module = fused_module
        return self

    def set_fuser_method(self, fuser_method: Any) -> BackendPatternConfig:
        """The function that fuses the pattern: `(is_qat, *modules)`."""
        self.fuser_method = fuser_method
        return self

    def _set_num_tensor_args_to_observation_type(self, table: dict[int, ObservationType]) -> BackendPatternConfig:
        self._num_tensor_args_to_observation_type = table
        return self

    def _set_input_type_to_index(self, table: dict[str, int]) -> BackendPatternConfig:
        self._input_type_to_index = table
        return self

    def _set_pattern_complex_format(self, pattern: Any) -> BackendPatternConfig:
        raise NotImplementedError("patterns in nested tuples are not taken; a pattern is a tuple in the order of calls")

    _FIELDS = (
        "pattern",
        "observation_type",
        "dtype_configs",
        "root_module",
        "qat_module",
        "reference_quantized_module",
        "fused_module",
        "fuser_method",
    )

    @classmethod
    def from_dict(cls, backend_pattern_config_dict: dict[str, Any]) -> BackendPatternConfig:
        """The config of a dict as `to_dict` makes it."""
        made = cls()
        for name in cls._FIELDS:
            if name in backend_pattern_config_dict:
                setattr(made, name, backend_pattern_config_dict[name])
        made.dtype_configs = [d if isinstance(d, DTypeConfig) else DTypeConfig.from_dict(d) for d in made.dtype_configs]
        made._num_tensor_args_to_observation_type = backend_pattern_config_dict.get(
            "num_tensor_args_to_observation_type", {}
        )
        made._input_type_to_index = backend_pattern_config_dict.get("input_type_to_index", {})
        return made

    def to_dict(self) -> dict[str, Any]:
        """The config as a dict."""
        found = {name: getattr(self, name) for name in self._FIELDS if getattr(self, name) is not None}
        found["dtype_configs"] = [d.to_dict() for d in self.dtype_configs]
        if self._num_tensor_args_to_observation_type:
            found["num_tensor_args_to_observation_type"] = self._num_tensor_args_to_observation_type
        if self._input_type_to_index:
            found["input_type_to_index"] = self._input_type_to_index
        return found


@dataclass
class BackendConfig:
    """The patterns of a backend.

    >>> import rushlight as torch
    >>> from rushlight.ao.quantization.backend_config import BackendConfig, BackendPatternConfig
    >>> config = BackendConfig("mine").set_backend_pattern_config(BackendPatternConfig(torch.nn.Linear))
    >>> [c.pattern.__name__ for c in config.configs]
    ['Linear']
    """

    name: str = ""
    _pattern_to_config: dict[Any, BackendPatternConfig] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"BackendConfig({self.__dict__})"

    def set_name(self, name: str) -> BackendConfig:
        """Another name."""
        self.name = name
        return self

    def set_backend_pattern_config(self, config: BackendPatternConfig) -> BackendConfig:
        """A further pattern, or another description of one."""
        self._pattern_to_config[config.pattern] = config
        return self

    def set_backend_pattern_configs(self, configs: list[BackendPatternConfig]) -> BackendConfig:
        """Further patterns."""
        for config in configs:
            self.set_backend_pattern_config(config)
        return self

    @property
    def configs(self) -> list[BackendPatternConfig]:
        """The patterns."""
        return list(self._pattern_to_config.values())

    @classmethod
    def from_dict(cls, backend_config_dict: dict[str, Any]) -> BackendConfig:
        """The config of a dict as `to_dict` makes it."""
        made = cls(backend_config_dict.get("name", ""))
        for row in backend_config_dict.get("configs", ()):
            made.set_backend_pattern_config(
                row if isinstance(row, BackendPatternConfig) else BackendPatternConfig.from_dict(row)
            )
        return made

    def to_dict(self) -> dict[str, Any]:
        """The config as a dict."""
        return {"name": self.name, "configs": [c.to_dict() for c in self.configs]}
