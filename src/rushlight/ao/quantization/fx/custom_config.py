"""Settings of graph mode that concern one model."""

from __future__ import annotations

from typing import Any

__all__ = ["ConvertCustomConfig", "FuseCustomConfig", "PrepareCustomConfig", "StandaloneModuleConfigEntry"]


class StandaloneModuleConfigEntry:
    """How a module that is prepared by itself is prepared."""

    def __init__(
        self, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any, backend_config: Any
    ) -> None:
        self.qconfig_mapping, self.example_inputs = qconfig_mapping, example_inputs
        self.prepare_custom_config, self.backend_config = prepare_custom_config, backend_config


class _Config:
    _LISTS: tuple[str, ...] = ()
    preserved_attributes: list[str]

    def set_preserved_attributes(self, attributes: list[str]) -> Any:
        """Attributes of the model that the graph module keeps although its graph does not use them."""
        self.preserved_attributes = attributes
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {k: v for k, v in self.__dict__.items() if len(v) > 0} })"

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> Any:
        """The settings of a dict as `to_dict` makes it."""
        made = cls()
        for name, value in config_dict.items():
            made.__dict__[{"non_traceable_module_name": "non_traceable_module_names", "non_traceable_module_class": "non_traceable_module_classes",
                           "input_quantized_idxs": "input_quantized_indexes", "output_quantized_idxs": "output_quantized_indexes"}.get(name, name)] = value  # fmt: skip
        return made

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dict."""
        return {k: v for k, v in self.__dict__.items() if v}


class PrepareCustomConfig(_Config):
    """Settings of `prepare_fx`: modules that are not looked into, inputs and results that are quantized already."""

    def __init__(self) -> None:
        self.standalone_module_names: dict[str, Any] = {}
        self.standalone_module_classes: dict[Any, Any] = {}
        self.float_to_observed_mapping: dict[Any, Any] = {}
        self.non_traceable_module_names: list[str] = []
        self.non_traceable_module_classes: list[Any] = []
        self.input_quantized_indexes: list[int] = []
        self.output_quantized_indexes: list[int] = []
        self.preserved_attributes: list[str] = []

    def set_standalone_module_name(self, module_name: str, *settings: Any) -> PrepareCustomConfig:
        """NotImplementedError: modules are not prepared by themselves."""
        raise NotImplementedError(
            "standalone modules are not prepared in graph mode; call prepare_fx for the module itself"
        )

    def set_standalone_module_class(self, module_class: Any, *settings: Any) -> PrepareCustomConfig:
        """NotImplementedError: modules are not prepared by themselves."""
        raise NotImplementedError(
            "standalone modules are not prepared in graph mode; call prepare_fx for the module itself"
        )

    def set_float_to_observed_mapping(
        self, float_class: Any, observed_class: Any, quant_type: Any = None
    ) -> PrepareCustomConfig:
        """Modules of one class become those of another, by its `from_float`, before they are observed."""
        self.float_to_observed_mapping[float_class] = observed_class
        return self

    def set_non_traceable_module_names(self, module_names: list[str]) -> PrepareCustomConfig:
        """Modules that are not looked into, by name."""
        self.non_traceable_module_names = module_names
        return self

    def set_non_traceable_module_classes(self, module_classes: list[Any]) -> PrepareCustomConfig:
        """Modules that are not looked into, by class."""
        self.non_traceable_module_classes = module_classes
        return self

    def set_input_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Inputs that come quantized."""
        self.input_quantized_indexes = indexes
        return self

    def set_output_quantized_indexes(self, indexes: list[int]) -> PrepareCustomConfig:
        """Results that stay quantized."""
        self.output_quantized_indexes = indexes
        return self


class ConvertCustomConfig(_Config):
    """Settings of `convert_fx`."""

    def __init__(self) -> None:
        self.observed_to_quantized_mapping: dict[Any, Any] = {}
        self.preserved_attributes: list[str] = []

    def set_observed_to_quantized_mapping(
        self, observed_class: Any, quantized_class: Any, quant_type: Any = None
    ) -> ConvertCustomConfig:
        """Modules of one class become those of another, by its `from_observed`."""
        self.observed_to_quantized_mapping[observed_class] = quantized_class
        return self


class FuseCustomConfig(_Config):
    """Settings of `fuse_fx`."""

    def __init__(self) -> None:
        self.preserved_attributes: list[str] = []
