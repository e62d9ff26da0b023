"""`torch.package`: what packages hold is read without running anything, their code only with consent."""

import io
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight.package import (
    EmptyMatchError,
    GlobGroup,
    PackageCodeError,
    PackageExporter,
    PackageImporter,
    PackagingError,
)

NET = """
import rushlight as torch
from {name}.helper import scale

RAN = []


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(2, 2)

    def forward(self, x):
        return scale(self.l(x))
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"packed_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "net.py").write_text(NET.format(name=name))
    (folder / "helper.py").write_text("def scale(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def written(name: str, *, intern: str = "**") -> tuple[bytes, Any]:
    __import__(f"{name}.net")
    net = sys.modules[f"{name}.net"].Net()
    out = io.BytesIO()
    with PackageExporter(out) as exporter:
        exporter.intern(f"{name}.{intern}")
        exporter.save_pickle("model", "net.pkl", net)
        exporter.save_text("notes", "a.txt", "hello")
        exporter.save_pickle("data", "d.pkl", {"w": torch.arange(3), "n": [1, "x"]})
    assert f"{name}.helper" in exporter.interned_modules() and exporter.get_rdeps(f"{name}.helper") == [f"{name}.net"]
    return out.getvalue(), net


def test_data_needs_no_consent_and_code_does(code: str) -> None:
    data, net = written(code)
    importer = PackageImporter(io.BytesIO(data))
    assert importer.load_text("notes", "a.txt") == "hello" and importer.python_version() is not None
    found = importer.load_pickle("data", "d.pkl")
    assert torch.equal(found["w"], torch.arange(3)) and found["n"] == [1, "x"]
    with pytest.raises(PackageCodeError, match="allow_code=True"):
        importer.load_pickle("model", "net.pkl")
    with pytest.raises(PackageCodeError, match="allow_code=True"):
        importer.import_module(f"{code}.net")
    trusted = PackageImporter(io.BytesIO(data), allow_code=True)
    again = trusted.load_pickle("model", "net.pkl")
    x = torch.ones(1, 2)
    assert torch.equal(again(x), net(x)) and type(again) is not type(net)
    assert torch.package.is_from_package(again) and not torch.package.is_from_package(net)
    assert trusted.file_structure().has_file(f"{code}/net.py") and "def scale" in trusted.get_source(f"{code}.helper")
    assert trusted.import_module(f"{code}.helper").scale(2) == 4


def test_modules_that_no_pattern_names_are_refused(code: str) -> None:
    __import__(f"{code}.net")
    with pytest.raises(PackagingError, match=f"{code}.net"):
        with PackageExporter(io.BytesIO()) as exporter:
            exporter.save_pickle("model", "net.pkl", sys.modules[f"{code}.net"].Net())
    with pytest.raises(PackagingError, match="denied"):
        with PackageExporter(io.BytesIO()) as exporter:
            exporter.intern(f"{code}.net")
            exporter.deny(f"{code}.helper")
            exporter.save_module(f"{code}.net")
    with pytest.raises(EmptyMatchError):
        with PackageExporter(io.BytesIO()) as exporter:
            exporter.extern("nothing.**", allow_empty=False)
    out = io.BytesIO()
    with PackageExporter(out) as exporter:
        exporter.intern(f"{code}.net")
        exporter.intern(code)
        exporter.mock(f"{code}.helper")
        exporter.save_module(f"{code}.net")
    trusted = PackageImporter(io.BytesIO(out.getvalue()), allow_code=True)
    with pytest.raises(NotImplementedError, match="mocked"):
        trusted.import_module(f"{code}.net").Net()(torch.ones(1, 2))


def test_hostile_pickles_and_names_are_refused() -> None:
    out = io.BytesIO()
    with PackageExporter(out) as exporter:
        exporter.save_binary("x", "bad.pkl", pickle.dumps(print))
    importer = PackageImporter(io.BytesIO(out.getvalue()))
    with pytest.raises(PackageCodeError):
        importer.load_pickle("x", "bad.pkl")
    with pytest.raises(ValueError, match="no name of a resource"):
        importer.load_binary("x", "../secret")
    with pytest.raises(RuntimeError):
        PackageImporter(io.BytesIO(b"no package"))


def test_patterns() -> None:
    group = GlobGroup(["torch.**", "a.*"], exclude="torch.nn.**")
    names = ("torch", "torch.fx.node", "torch.nn", "torch.nn.init", "a.b", "a.b.c", "b")
    assert [group.matches(n) for n in names] == [True, True, False, False, True, False, False]


def of_source(source: str, *patterns: tuple[str, str]) -> tuple[io.BytesIO, PackageExporter]:
    target = io.BytesIO()
    with PackageExporter(target) as exporter:
        for kind, names in patterns:
            getattr(exporter, kind)(names)
        exporter.save_source_string("foo", source)
    target.seek(0)
    return target, exporter


def test_the_standard_library_is_left_out_whatever_the_patterns() -> None:
    for kind in ("intern", "mock", "deny"):
        _, exporter = of_source("import math, collections.abc, torch.nn, builtins", (kind, "**"))
        assert exporter.externed_modules() == ["builtins", "collections.abc", "math", "torch.nn"]
        assert exporter.interned_modules() == ["foo"] and exporter.mocked_modules() == []
    for name in ("sys", "io", "numpy"):
        with pytest.raises(PackagingError, match=f"{name}: no pattern"):
            of_source(f"import {name}")
        assert of_source(f"import {name}", ("extern", name))[1].externed_modules() == [name]


def test_packaged_code_reaches_its_importer_and_external_submodules() -> None:
    source = "import torch_package_importer as own\nimport xml.dom\ndef text(): return own.load_text('foo', 'x.txt')\n"
    target = io.BytesIO()
    with PackageExporter(target) as exporter:
        exporter.save_source_string("foo", source)
        exporter.save_source_string("bar.inner", "there = __import__('', globals(), locals(), [''], 1)\n")
        exporter.save_source_string("bar", "", is_package=True)
        exporter.save_text("foo", "x.txt", "held")
        exporter.extern(["xml.dom", "foo_absent.**"])
        exporter.add_dependency("foo_absent.part")
    target.seek(0)
    importer = PackageImporter(target, allow_code=True)
    foo = importer.import_module("foo")
    assert foo.text() == "held" and foo.xml.dom.__name__ == "xml.dom"
    assert importer.import_module("bar.inner").there is importer.import_module("bar")
    assert importer.import_module("foo_absent").__path__ == []
    with pytest.raises(ModuleNotFoundError, match="foo_absent"):
        importer.import_module("foo_absent.part")


def test_mocked_modules_say_so() -> None:
    target, _ = of_source("import absent_here\ndef use(): return absent_here.function(1)\n", ("mock", "absent_here"))
    with pytest.raises(NotImplementedError, match="function was mocked out"):
        PackageImporter(target, allow_code=True).import_module("foo").use()


def test_a_package_may_be_a_folder(tmp_path: Path) -> None:
    target = io.BytesIO()
    with PackageExporter(target) as exporter:
        exporter.save_pickle("model", "weights.pkl", {"w": torch.arange(3.0)})
        for name in ("b.txt", "a.txt"):
            exporter.save_text("model", name, name)
    with zipfile.ZipFile(target) as archive:
        archive.extractall(tmp_path)
    importer = PackageImporter(tmp_path / "archive")
    assert importer.load_pickle("model", "weights.pkl")["w"].tolist() == [0.0, 1.0, 2.0]
    reader = importer.get_resource_reader("model")
    assert list(reader.contents()) == ["a.txt", "b.txt", "weights.pkl"]
