"""Writes the table of kernel families into docs/performance.md: `python bench/page.py` prints it, with `--write` it is put into the page.

For every family: what the machine could do at best (`limits.py`), what PyTorch reaches where it is installed, what we reach, and why. The rows that
the front pages show are copied from there (`--front` does only that). `--only train` measures one family and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import limits
from rows import ROWS
from run import Worker, lowest, show_time

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- families: begin -->", "<!-- families: end -->"
FRONT_BEGIN, FRONT_END = "<!-- speed: begin -->", "<!-- speed: end -->"
FRONT_PAGES = {"README.md": 0, "README.zh-CN.md": 1}  # which of two languages
FRONT_HEADS = (
    ("{machine} with {threads} threads", "PyTorch 2.13", "rushlight", "times PyTorch's speed"),
    ("{machine}，{threads} 个线程", "PyTorch 2.13", "rushlight", "PyTorch 速度的倍数"),
)
# What the front pages show: a row of the page, and its name in both languages.
FRONT_ROWS = {
    "add_10": ("add ten numbers: the cost of a call", "十个数相加：一次调用的开销"),
    "float32_1024": ("multiply two 1024 x 1024 matrices, float32", "两个 1024 x 1024 的 float32 矩阵相乘"),
    "mlp_784_512_512_10": ("a training step of an MLP, 64 images", "一个 MLP 的一步训练，64 张图像"),
}


@dataclass(frozen=True)
class Family:
    """Rows with a common beginning of their names; `bound` is what limits them, `why` what our kernels do about it."""

    prefix: str
    title: str
    bound: str
    why: str


FAMILIES = (
    Family("overhead", "Calls", "dispatch", "one lookup from the arguments' specs to a plan, one native stub for all kernels"),
    Family("pointwise", "Element-wise", "bandwidth; arithmetic in cache", "one pass, vector polynomials, reused memory, results larger than the cache streamed past it"),
    Family("rows", "Reductions, norms, losses", "bandwidth", "all passes over a row in one kernel while the row is in cache; backward is one kernel too"),
    Family("products", "Matrix products", "arithmetic", "register tiles over packed panels (BLIS's structure) in LLVM text; pieces by size alone"),
    Family("convolutions", "Convolutions", "arithmetic; depthwise: bandwidth", "windows are gathered while the panels of a product are packed; depthwise and few channels: direct"),
    Family("resampling", "Pooling, resizing", "bandwidth", "vectors along rows of the image, no indices in memory unless asked for"),
    Family("attention", "Attention", "arithmetic", "blocks of scores stay in cache, softmax on the way; nothing as large as the square of the length"),
    Family("recurrent", "Recurrent layers", "arithmetic", "one product for the inputs of all steps, then steps over rows of the batch with the weights packed once"),
    Family("fourier", "Fourier transforms", "arithmetic; long ones: bandwidth", "transforms side by side in lanes; one sequence is a matrix that stays in cache"),
    Family("moving", "Choosing, moving, ordering", "bandwidth", "rows are copied as rows; sorting by vector networks and merges"),
    Family("drawing", "Random numbers", "arithmetic", "the generator's state is cut into parts that threads advance alone, with PyTorch's numbers"),
    Family("optimizers", "Optimizers", "bandwidth", "one kernel for all parameters"),
    Family("train", "A training step", "all of it", "the sum of the above"),
)  # fmt: skip


def chosen(only: str | None) -> list[Family]:
    return [f for f in FAMILIES if only in (None, f.prefix)]


def measured(args: argparse.Namespace, peer: str | None) -> dict[str, tuple[float | None, float | None]]:
    """(our seconds, the peer's seconds) of every row, the two in turn."""
    modules = ["rushlight", *([peer] if peer else [])]
    workers = [Worker(module, args.threads, args.budget) for module in modules]
    found = {}
    for name in ROWS:
        if any(name.startswith(f.prefix + "/") for f in chosen(args.only)):
            answers: list[list[dict[str, Any]]] = [[] for _ in workers]
            for _ in range(args.rounds):
                for k, w in enumerate(workers):
                    answers[k].append(w.ask(name))
            found[name] = lowest(answers[0]), lowest(answers[1]) if peer else None
            print(f"  {name}", *(show_time(t) if t else "n/a" for t in found[name]), flush=True)
    for w in workers:
        w.close()
    return found


def table(found: dict[str, tuple[float | None, float | None]], best: limits.Limits, peer: str) -> list[str]:
    """The page's lines for the families that were measured."""
    lines = []
    for family in FAMILIES:
        names = [n for n in found if n.startswith(family.prefix + "/")]
        if not names:
            continue
        ratios = [theirs / ours for ours, theirs in map(found.__getitem__, names) if ours and theirs]
        mean = (
            f", {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} times {peer}'s speed in the geometric mean"
            if ratios
            else ""
        )
        lines += [f"### {family.title}", "", f"Bound by {family.bound}{mean}. How: {family.why}.", ""]
        lines += [
            f"| row | limit | {peer} | rushlight | times {peer}'s speed | times the limit |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for name in names:
            ours, theirs = found[name]
            row = ROWS[name]
            limit = best.seconds(row.flops, row.moved, row.dtype) if row.flops or row.moved else None
            cells = [
                name.partition("/")[2],
                show_time(limit) if limit else "",
                show_time(theirs) if theirs else "",
                show_time(ours) if ours else "failed",
                f"{theirs / ours:.2f}" if ours and theirs else "",
                f"{ours / limit:.1f}" if ours and limit else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return lines


def put(path: Path, begin: str, end: str, lines: list[str]) -> None:
    """Replace what stands between a page's two marks."""
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no place for the table: it needs the lines {begin} and {end}")
    made = path.with_suffix(".new")
    made.write_text("\n".join([before + begin, *lines, end + after]), encoding="utf-8")
    os.replace(made, path)


def with_families(text: str, lines: list[str]) -> list[str]:
    """The lines between the page's marks, with these families' sections in place of the former ones."""
    sections = {part.partition("\n")[0]: part.strip() for part in text.split("### ")}
    sections |= {part.partition("\n")[0]: part.strip() for part in "\n".join(lines).split("### ") if part.strip()}
    first, *rest = sections.values()
    return ["", first, "", *(line for part in rest for line in (f"### {part}", ""))]


def families_of(text: str) -> str:
    """What stands between the page's marks."""
    return text.partition(BEGIN)[2].partition(END)[0]


def front(text: str, language: int) -> list[str]:
    """The table of a front page, from the text of the page of families."""
    families = families_of(text)
    machine, _, threads = families.strip().partition(", ")
    rows = {
        cells[0]: cells
        for line in families.splitlines()
        if line.startswith("| ")
        for cells in [line.strip("| ").split(" | ")]
    }
    head = [cell.format(machine=machine, threads=threads.partition(" ")[0]) for cell in FRONT_HEADS[language]]
    lines = ["", f"| {' | '.join(head)} |", "| --- | --- | --- | --- |"]
    for name, label in FRONT_ROWS.items():
        _, _, theirs, ours, ratio, *_ = rows[name]
        lines.append(f"| {label[language]} | {theirs} | {ours} | {ratio} |".replace(" us", " µs"))
    return [*lines, ""]


def put_front() -> None:
    for name, language in FRONT_PAGES.items():
        put(PAGE.parent.parent / name, FRONT_BEGIN, FRONT_END, front(PAGE.read_text(encoding="utf-8"), language))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=float, default=0.3, help="seconds of samples for a row and round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer", default="torch", help="the module to compare with")
    parser.add_argument("--only", choices=[f.prefix for f in FAMILIES], help="measure one family")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/performance.md, and its rows into the front pages"
    )
    parser.add_argument(
        "--front", action="store_true", help="measure nothing, copy rows of docs/performance.md into the front pages"
    )
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    args = parser.parse_args()
    if args.front:
        return put_front()
    peer = args.peer if importlib.util.find_spec(args.peer) is not None else None
    best = limits.measure(args.threads)
    found = measured(args, peer)
    machine = limits.show(best, args.threads)
    lines = table(found, best, "PyTorch" if args.peer == "torch" else args.peer)
    lines = (
        with_families(families_of(PAGE.read_text(encoding="utf-8")), lines)
        if args.only
        else ["", f"{machine}.", "", *lines]
    )
    print("\n".join(lines))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine, "rows": found}, indent=1) + "\n")
    if args.write:
        put(PAGE, BEGIN, END, lines)
        put_front()


if __name__ == "__main__":
    main()
