"""The benchmark's rows run with rushlight as it is; what they measure is looked at by people."""

from __future__ import annotations

import importlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


def imported(name: str) -> ModuleType:
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def rows() -> dict:
    return imported("rows").ROWS


@pytest.fixture(scope="module")
def models() -> ModuleType:
    return imported("models")


@pytest.mark.slow
def test_every_row_runs(rows: dict) -> None:
    import rushlight
    import rushlight.nn.functional
    import rushlight.optim

    for name, row in rows.items():
        assert (
            (row.claim >= 1.0 or name.startswith("new_shapes")) and row.claim > 0 and row.flops >= 0 and row.moved >= 0
        )
        if not name.endswith(("16M", "10M")):
            call = row.make(rushlight)
            call()
            call()


def test_the_runner_prints_a_table() -> None:
    argv = ["--only", "overhead|installed", "--rounds", "1", "--budget", "0.01", "--peer", "no_such_framework"]
    done = subprocess.run([sys.executable, str(BENCH / "run.py"), *argv], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "overhead/add_10 " in done.stdout and "failed" not in done.stdout
    assert "installed_size" in done.stdout and "without ratios" in done.stdout


@pytest.mark.slow
def test_first_passes_have_a_table() -> None:
    argv = ["--only", "tiny_t5$", "--rounds", "1", "--threads", "1", "--peer", "no_such_framework"]
    done = subprocess.run(
        [sys.executable, str(BENCH / "first_pass.py"), *argv], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()[1:]
    figures = dict(zip(head.split()[1:], row.split()[1:], strict=False))
    assert float(figures["empty"]) > float(figures["again"]) > float(figures["steady"]) > 0


@pytest.mark.oracle
def test_models_begin_as_pytorchs(models: ModuleType) -> None:
    import torch

    import rushlight

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its threads wait for each other long where other tests have the cores
    try:
        for name in ("tiny_t5", "tiny_t5_generates", "u_net"):
            found = []
            for module in (rushlight, torch):
                module.manual_seed(0)
                step = models.MODELS[name](module)
                found.append([float(step()) for _ in range(2)])
            assert found[0] == pytest.approx(found[1], rel=1e-3), name
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_instructions_are_counted() -> None:
    if shutil.which("valgrind") is None or platform.machine() != "x86_64":
        pytest.skip("needs Valgrind")
    argv = ["--only", "overhead/add_10$"]
    done = subprocess.run(
        [sys.executable, str(BENCH / "instructions.py"), *argv], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    name, count = done.stdout.split()
    assert name == "overhead/add_10" and 1000 < float(count) < 20000


def test_page_of_a_run_on_a_card() -> None:
    page = imported("cuda_page")
    machine = {"card": "NVIDIA H200", "date": "2027-01-02", "python": "3.12", "torch": "2.13", "triton": None}
    sections = {
        "units": {"a": {"right": True}, "b": {"right": False}},
        "rows rushlight": {"copy": {"ms": 2.0, "GB/s": 4000.0}, "gelu": {"failed": "RuntimeError"}},
        "rows torch": {"copy": {"ms": 3.0}, "gelu": {"ms": 1.0}},
    }
    lines = page.page_of({"machine": machine, "sections": sections})
    assert lines[1] == "NVIDIA H200, 2027-01-02; torch 2.13, python 3.12. 1 of 2 kernels agree with NumPy; not: b."
    assert "| copy | 3 ms | 2 ms | 1.50 | 4000 GB/s |" in lines
    assert "| gelu | 1 ms | failed |  |  |" in lines

    with pytest.raises(ValueError, match="no times"):
        page.page_of({"machine": {**machine, "card": "NVIDIA H200 (emulated)"}, "sections": sections})
    with pytest.raises(ValueError, match="no times"):
        page.page_of({"machine": machine, "sections": {"rows rushlight": {"copy": {"ran": True}}}})


SECTION = """
import json, os, sys, time
known = {tuple(pair) for pair in json.load(sys.stdin)}
say = lambda *words: print(json.dumps(words), flush=True)
for name in "abcde":
    if ("rows", name) in known:
        continue
    say("begin", "rows", name)
    if name == "b":
        os._exit(7)
    if name == "c":
        time.sleep(60)
    say("row", "rows", name, {"failed": "broken"} if name == "d" else {"ms": 1.0, "process": os.getpid()})
    if name == "d":
        sys.exit(3)
"""


def test_a_row_that_dies_or_hangs_on_a_card_loses_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = imported("cuda")
    (tmp_path / "section.py").write_text(SECTION)
    monkeypatch.setattr(bench, "FILE", tmp_path / "section.py")
    report, section = bench.Report(tmp_path), bench.Section("all", "rows", 60, row_seconds=1)
    bench.run_section(report, section, dry=False, end=bench.time.monotonic() + 60)
    rows = bench.json.loads((tmp_path / "cuda.json").read_text())["sections"]["rows"]
    assert list(rows) == [*"abcde"]
    assert rows["b"] == {"failed": "its process ended with status 7"}
    assert rows["c"] == {"failed": "ran past its limit: killed"}
    assert rows["d"] == {"failed": "broken"}
    assert rows["e"]["process"] != rows["a"]["process"]
    again = bench.Report(tmp_path / "again", tmp_path / "cuda.json")
    assert again.known() == [("rows", "a"), ("rows", "e")]


def test_a_section_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs then is no failed row, and is measured by a run that goes on."""
    bench = imported("cuda")
    (tmp_path / "section.py").write_text(SECTION.replace("os._exit(7)", "pass"))
    monkeypatch.setattr(bench, "FILE", tmp_path / "section.py")
    report, begun = bench.Report(tmp_path), bench.time.monotonic()
    bench.run_section(report, bench.Section("all", "rows", 2, row_seconds=60), dry=False, end=begun + 60)
    assert bench.time.monotonic() - begun < 15
    assert report.data["sections"]["sections"] == {"all": {"ended": "its time was over, in rows/c"}}
    assert not report.data["complete"] and not report.wrong()
    assert bench.Report(tmp_path / "again", tmp_path / "cuda.json").known() == [("rows", "a"), ("rows", "b")]


def test_a_section_whose_process_never_starts_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = imported("cuda")
    (tmp_path / "section.py").write_text("raise SystemExit('no driver')")
    monkeypatch.setattr(bench, "FILE", tmp_path / "section.py")
    report = bench.Report(tmp_path)
    bench.run_section(report, bench.Section("all", "rows", 60), dry=False, end=bench.time.monotonic() + 60)
    assert report.wrong() == ["sections/all"]


ROWS_OF_MANY = """
import json, sys
known = {tuple(pair) for pair in json.load(sys.stdin)}
open(sys.argv[0] + ".log", "a").write(" ".join(sys.argv[1:]) + "\\n")
heading = "units" if sys.argv[1] == "correctness" else sys.argv[1]
for name in "ab":
    if (heading, name) not in known:
        print(json.dumps(["begin", heading, name]), flush=True)
        values = {"right": RIGHT or name == "b"} if heading == "units" else {"ms": 1.0}
        print(json.dumps(["row", heading, name, values]), flush=True)
"""


@pytest.mark.parametrize("right", [True, False])
def test_a_run_on_a_card_goes_on_behind_what_is_complete(
    right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, file = imported("cuda"), tmp_path / "section.py"
    file.write_text(ROWS_OF_MANY.replace("RIGHT", str(right)))
    monkeypatch.setattr(bench, "FILE", file)
    plan = [bench.Section(rows, rows, 60, options=("--x",), together=rows != "rows") for rows in ("correctness", "warm", "rows")]  # fmt: skip
    monkeypatch.setattr(bench, "PLAN", plan)
    report = bench.Report(tmp_path)
    bench.run(report, "", False, bench.time.monotonic() + 60)
    assert report.wrong() == ([] if right else ["units/a"]) and not report.hopeless()
    assert set(report.data["complete"]) == {"warm", "rows"} | ({"correctness"} if right else set())

    again = bench.Report(tmp_path / "again", tmp_path / "cuda.json")
    bench.run(again, "", False, bench.time.monotonic() + 60)
    begun = (tmp_path / "section.py.log").read_text().splitlines()
    assert sorted(begun[:2]) == ["correctness --x", "warm --x"] and begun[2] == "rows --x"
    assert begun[3:] == ([] if right else ["correctness --x"])


def test_a_run_on_a_card_ends_where_no_kernel_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, file = imported("cuda"), tmp_path / "section.py"
    file.write_text(ROWS_OF_MANY.replace('RIGHT or name == "b"', "False"))
    monkeypatch.setattr(bench, "FILE", file)
    monkeypatch.setattr(bench, "PLAN", [bench.Section(rows, rows, 60) for rows in ("correctness", "rows")])
    report = bench.Report(tmp_path)
    bench.run(report, "", False, bench.time.monotonic() + 60)
    assert "rows" not in report.data["sections"] and "sections/run" in report.wrong()


def test_ratios_are_of_rows_that_both_have(tmp_path: Path) -> None:
    bench = imported("cuda")
    report = bench.Report(tmp_path)
    for heading, name, values in (
        ("rows rushlight", "copy", {"ms": 2.0, "GB/s": 3000.0}), ("rows torch", "copy", {"ms": 1.5, "GB/s": 4000.0}),
        ("rows rushlight", "product", {"ms": 2.0}), ("rows torch", "product", {"ms": 1.0}), ("products wgmma", "product", {"ms": 4.0}),
        ("host rushlight", "add", {"us": 1.0}),
    ):  # fmt: skip
        report.put(heading, name, **values)
    bench.ratios(report)
    found = report.data["sections"]
    assert found["torch's time over ours, rows, ms"] == {"copy": {"ratio": 0.75}, "product": {"ratio": 0.5}}
    assert found["torch's time over ours, products wgmma, ms"] == {"product": {"ratio": 0.25}}
    assert found["share of the best copy's rate"] == {"copy": {"share": 0.75}}


def test_the_run_on_a_card_fits_into_its_time() -> None:
    """To its limits: all that must be known, first; the rest takes what is left."""
    bench = imported("cuda")
    together = max(s.seconds for s in bench.PLAN if s.together)
    needed = [s for s in bench.PLAN if not s.together and s.title in ("rows", "host", "models", "triton", "start", "warpgroups", "products wgmma")]  # fmt: skip
    assert len(needed) == 7 and together + sum(s.seconds for s in needed) <= bench.FIRST_RUN < 540 - 15
    assert bench.RESUMED < 240 - 15


def test_the_run_on_a_card_has_rows_for_each_section() -> None:
    sections = imported("cuda_sections").SECTIONS
    assert {section.rows for section in imported("cuda").PLAN} == set(sections)


def test_sections_of_products_have_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one title and name are run once, whatever the settings of the second section are."""
    cuda, cuda_sections = imported("cuda"), imported("cuda_sections")

    ways = []
    for section in cuda.PLAN:
        if section.title.startswith("products"):
            with monkeypatch.context() as context:
                for name, value in section.settings:
                    context.setenv(name, value)
                ways.append(cuda_sections.way_of_products())
    assert len(ways) > 5 and len(set(ways)) == len(ways) and {"mma", "mma walk", "wgmma stretches"} <= set(ways)
