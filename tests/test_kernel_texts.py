"""The comparison of kernels before and after a change (`tools/kernel_texts.py`): names do not count, instructions do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tools import kernel_texts
from tools.kernel_texts import Function, differences, functions

TEXT = """
declare i64 @llvm.smin.i64(i64, i64)
declare double @cbrt(double)
@rate = private unnamed_addr constant [2 x i8] c"\\41\\00"
!0 = !{!"branch_weights", i32 1, i32 100000}
define i32 @k12ab(ptr %bufs, i64 %piece) nounwind {
entry:
  %v1 = load i64, ptr %bufs, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %j = add nsw i64 %i, %v1
  %s = call i64 @llvm.smin.i64(i64 %j, i64 %piece)
  call void @helper(i64 %s, ptr @rate)
  %c = icmp eq i64 %j, 0
  br i1 %c, label %loop, label %done, !prof !0
done:
  ret i32 0
}
define void @helper(i64 %n, ptr %p) {
  %slot = alloca i64
  %x = call double @cbrt(double 1.0)
  ret void
}
define void @second(i64 %n, ptr %p) {
  ret void
}
"""
RENAMES = (
    ("k12ab", "k34cd"),
    ("helper", '"ot-her"'),
    ("%v1", "%first"),
    ("%j", "%next"),
    ("%s", "%least"),
    ("loop", "again"),
    ("@rate", "@.str.7"),
)


def known(name: str) -> bool:
    return name == "cbrt"


def texts(module: str) -> list[str]:
    return sorted(f.text for f in functions(module, known))


def test_names_and_order_do_not_count() -> None:
    renamed = TEXT
    for old, new in RENAMES:
        assert old in renamed
        renamed = renamed.replace(old, new)
    head, *parts = renamed.split("define ")
    turned = head + "".join(f"define {part}\n" for part in reversed(parts))
    assert texts(turned) == texts(TEXT) and turned != TEXT
    assert [f.name for f in functions(turned)] == ["second", "ot-her", "k34cd"]
    assert texts("; a remark\n" + TEXT.replace("align 8", "align 8 ; and another")) == texts(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add nsw", "add"), ("%i, %v1", "%v1, %i"), ("align 8", "align 4"), ("@helper(i64 %s", "@k12ab(i64 %s"), ("nounwind ", ""),
        ("@cbrt", "@exp"), ('c"\\41', 'c"\\42'), ("i32 100000", "i32 1000"), ("smin", "smax"),
    ],
)  # fmt: skip
def test_instructions_operands_flags_and_constants_do(old: str, new: str) -> None:
    assert old in TEXT and texts(TEXT.replace(old, new)) != texts(TEXT)


def test_sorts_and_calls() -> None:
    kernel, helper, second = functions(TEXT, known)
    assert (kernel.native, helper.native, second.native) == (False, True, False)
    assert kernel.calls == [helper.digest] and helper.calls == []
    assert functions("declare void @far()\ndefine void @f() {\n  call void @far()\n  ret void\n}\n")[0].calls == [
        "extern"
    ]


def test_what_differs_is_told() -> None:
    one, two = functions(TEXT), functions(TEXT.replace("add nsw", "sub nsw"))
    assert list(differences({"a": one}, {"a": list(reversed(one))}, 3)) == []
    head, diff = differences({"a": one}, {"a": two}, 3)
    assert (
        head == "a: 1 kernels the same, 1 only before, 1 only after"
        and "-  %6 = add nsw" in diff
        and "+  %6 = sub nsw" in diff
    )
    assert list(differences({"a": one}, {}, 3)) == ["a: only before"]
    elsewhere = functions(TEXT.replace("@helper(i64 %s", "@second(i64 %s"))
    assert list(differences({"a": one}, {"a": elsewhere}, 3)) == ["a: k12ab is the same and calls other functions"]
    apart = [*functions(TEXT[: TEXT.index("define void @helper")]), *one[1:]]  # the callees are in another module
    assert apart[0].calls == ["extern"] and list(differences({"a": one}, {"a": apart}, 3)) == []


def test_files_and_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = str(tmp_path / "before.gz"), str(tmp_path / "after.gz")
    kernel_texts.write(before, {"a": functions(TEXT)})
    kernel_texts.write(after, {"a": functions(TEXT.replace("alloca i64", "alloca i32"))})
    assert gzip.open(before).read(1) == b"{"
    for words, status in (((before, before), 0), ((before, after), 1), ((before, after, "--kernels"), 0)):
        monkeypatch.setattr("sys.argv", ["kernel_texts.py", "compare", *words])
        assert kernel_texts.main() == status
    assert "the same: 3 functions of 1 programs" in capsys.readouterr().out


def test_programs_compile_in_folders_of_their_own() -> None:
    found = kernel_texts.capture_one(["-c", "import rushlight as torch; print(torch.arange(37.0).sin() * 3)"])
    assert {f.native for f in found} == {False, True} and all(isinstance(f, Function) for f in found)
