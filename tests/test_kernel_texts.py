"""The comparison of kernels before and after a change (`tools/kernel_texts.py`): names do not count, instructions do."""

from __future__ import annotations

from tools import kernel_texts

TEXT = """
declare i64 @llvm.smin.i64(i64, i64)
define i32 @k12ab(ptr %bufs, i64 %piece) nounwind {
entry:
  %v1 = load i64, ptr %bufs, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %j = add nsw i64 %i, %v1
  %s = call i64 @llvm.smin.i64(i64 %j, i64 %piece)
  call void @helper(i64 %s)
  br label %loop
}
define void @helper(i64 %n) {
  ret void
}
"""
RENAMED = (
    TEXT.replace("k12ab", "k34cd").replace("helper", "other").replace("%v1", "%first").replace("%j", "%next").replace("%s", "%least")
).replace("loop", "again")  # fmt: skip


def test_names_do_not_count():
    assert kernel_texts.canonical(TEXT) == kernel_texts.canonical(RENAMED) != TEXT


def test_instructions_operands_and_flags_do():
    plain = kernel_texts.canonical(TEXT)
    for old, new in (("add nsw", "add"), ("%i, %v1", "%v1, %i"), ("align 8", "align 4"), ("@helper(i64 %s)", "@k12ab(i64 %s)"), ("nounwind ", "")):
        assert old in TEXT and kernel_texts.canonical(TEXT.replace(old, new)) != plain


def test_what_differs_is_told(tmp_path):
    one, two = kernel_texts.canonical(TEXT), kernel_texts.canonical(TEXT.replace("add nsw", "sub nsw"))
    same = {"a": {"1": one}, "b": {"1": one, "2": two}}
    assert list(kernel_texts.differences(same, same, 3)) == []
    head, diff = kernel_texts.differences(same, {**same, "b": {"1": one, "3": one}}, 3)
    assert head == "b: 1 texts the same, 1 only before, 1 only after" and "-  %6 = sub nsw" in diff and "+  %6 = add nsw" in diff
