"""Exported programs that are no longer what they may be: each is refused, with the node or the name that is wrong."""

from __future__ import annotations

import operator

import pytest

import rushlight as torch
from rushlight._export.verifier import SpecViolationError, TrainingIRVerifier, Verifier
from rushlight.export.graph_signature import InputKind, OutputKind, OutputSpec

ADD = torch.ops.aten.add.Tensor


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("held", torch.ones(3))
        self.constant = torch.tensor([1.0])

    def forward(self, x, y):
        return self.linear(x) + self.held * y + self.constant


def exported(decomposed=True):
    program = torch.export.export(Layers(), (torch.ones(2, 3), torch.ones(2, 3)))
    return program.run_decompositions({}) if decomposed else program


def first_sum(program):
    return next(n for n in program.graph.nodes if n.target is ADD)


def input_of(program, kind):
    return next(s for s in program.graph_signature.input_specs if s.kind is kind)


def retargeted(target, op="call_function"):
    def change(program):
        node = first_sum(program)
        node.op, node.target = op, target

    return change


def with_list(program):
    program.graph_module.listed = [1]
    with program.graph.inserting_before(first_sum(program)):
        program.graph.create_node("get_attr", "listed")


def result_as(kind, target):
    def change(program):
        specs = program.graph_signature.output_specs
        specs[0] = OutputSpec(kind, specs[0].arg, target)

    return change


def attribute(find, name, value):
    return lambda program: setattr(find(program), name, value)


REFUSED = {
    "no value": (lambda p: first_sum(p).meta.pop("val"), "Node.meta add is missing val field"),
    "an input without value": (
        lambda p: next(iter(p.graph.nodes)).meta.pop("val"),
        "Node.meta p_linear_weight is missing val field",
    ),
    "a value of no type": (lambda p: first_sum(p).meta.update(val=object()), "Node.meta add has invalid val field"),
    "a function": (retargeted(torch.add), "is not an allowed operator type"),
    "a packet": (retargeted(torch.ops.aten.add), "Operator 'aten.add' is not an allowed operator type"),
    "a product by @": (retargeted(operator.matmul), "is not an allowed operator type"),
    "a method": (retargeted("add", "call_method"), "call_module is not valid: got a class 'add'"),
    "a list": (with_list, "Invalid get_attr type <class 'list'> on target listed"),
    "too few inputs": (lambda p: p.graph_signature.input_specs.pop(), r"\(6\) does not match .* \(5\)\nPlaceholders missing input_specs: {'y'}"),
    "another input": (attribute(lambda p: p.graph_signature.input_specs[0].arg, "name", "z"), "Input spec name z does not match node name p_linear_weight"),
    "parameter": (attribute(lambda p: input_of(p, InputKind.PARAMETER), "target", "z"), "Parameter z is not in the state dict"),
    "buffer": (attribute(lambda p: input_of(p, InputKind.BUFFER), "target", "z"), "Buffer z is not in the state dict"),
    "buffer in the state": (attribute(lambda p: input_of(p, InputKind.BUFFER), "persistent", False), "Non-persistent buffer held is in the state dict"),
    "persistence": (attribute(lambda p: input_of(p, InputKind.BUFFER), "persistent", None), "Buffer held is missing a persistence flag"),
    "constant": (lambda p: p.constants.clear(), "Constant tensor constant is not in the constants dictionary"),
    "no parameter": (lambda p: p.state_dict.update({"linear.weight": torch.ones(3, 3)}), "linear.weight is not an instance of torch.nn.Parameter"),
    "results": (lambda p: p.graph_signature.output_specs.append(p.graph_signature.output_specs[0]), "Number of output nodes 1 is different"),
    "result": (attribute(lambda p: p.graph_signature.output_specs[0].arg, "name", "z"), "User output add_1 is not in the correct order"),
    "written buffer": (result_as(OutputKind.BUFFER_MUTATION, "z"), "Buffer output add_1 does not point to a buffer that exists"),
    "written input": (result_as(OutputKind.USER_INPUT_MUTATION, "z"), "User input output add_1 does not point to a user input that exists"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_program_that_is_changed_is_refused(what):
    change, message = REFUSED[what]
    for decomposed in (False, True):
        program = exported(decomposed)
        program.validate()
        change(program)
        with pytest.raises(SpecViolationError, match=message):
            program.validate()


def test_operators_are_functional_but_in_training_programs():
    program = exported(False)
    first_sum(program).target = torch.ops.aten.add_.Tensor
    program.validate()
    TrainingIRVerifier().check(program)
    with pytest.raises(SpecViolationError, match="operator 'aten.add_.Tensor' is not functional"):
        Verifier().check(program)
    program = exported()
    first_sum(program).target = torch.ops.aten.add_.Tensor
    with pytest.raises(SpecViolationError, match="operator 'aten.add_.Tensor' is not functional"):
        program.validate()


def test_an_attribute_that_is_not_there_is_an_error_of_the_graph():
    program = exported()
    with program.graph.inserting_before(first_sum(program)):
        program.graph.create_node("get_attr", "absent")
    with pytest.raises(RuntimeError, match="references nonexistent attribute absent"):
        program.validate()
