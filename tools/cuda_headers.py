"""What NVIDIA's headers and libraries say of everything that rushlight calls by ctypes, as a table that tests compare with.

    python tools/cuda_headers.py FOLDER --download     # the wheels into FOLDER/<version of CUDA>, then as without
    python tools/cuda_headers.py FOLDER                # compile against their headers, and rewrite the table

A small C++ program that includes the headers prints the parameters of each function that is asked for (how many, how wide,
of which kind), which symbol `cuda.h` chooses for a name, every number and every structure.  `cudaTypedefs.h` says in which
version of CUDA a function of the driver came.  `nm -D` says what the libraries of the wheels export.  It needs g++ and nm,
no GPU and no driver.  A folder FOLDER/<version> may hold libraries themselves, such as those of a driver's package.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.cuda.headers.asked import LIBRARIES, Asked  # noqa: E402

TABLE = ROOT / "tests" / "cuda" / "headers" / "table.json"
# Version of CUDA -> requirements whose wheels hold its headers and libraries.
WHEELS: dict[str, tuple[str, ...]] = {
    "12.1": (
        "nvidia-cuda-runtime-cu12==12.1.*", "nvidia-cuda-nvcc-cu12==12.1.*", "nvidia-cuda-cupti-cu12==12.1.*", "nvidia-nvml-dev-cu12==12.1.*",
        "nvidia-nvtx-cu12==12.1.*", "nvidia-cuda-profiler-api-cu12==12.1.*",
    ),
    "12.9": (
        "nvidia-cuda-runtime-cu12==12.9.*", "nvidia-cuda-nvcc-cu12==12.9.*", "nvidia-cuda-cupti-cu12==12.9.*", "nvidia-nvml-dev-cu12==12.9.*",
        "nvidia-nvtx-cu12==12.9.*", "nvidia-cuda-profiler-api-cu12==12.9.*", "nvidia-nccl-cu12", "nvidia-cublas-cu12==12.9.*", "nvidia-cusolver-cu12==11.7.*",
        "nvidia-cuda-cccl-cu12==12.9.*", "nvidia-cusparse-cu12==12.5.*", "nvidia-cudnn-cu12==9.*",
    ),
    "13.4": (
        "nvidia-cuda-runtime==13.4.*", "nvidia-cuda-crt==13.4.*", "nvidia-cuda-cupti==13.4.*", "nvidia-nvml-dev==13.4.*", "nvidia-nvtx==13.4.*",
        "nvidia-cuda-profiler-api==13.4.*", "nvidia-nccl-cu13", "nvidia-cublas", "nvidia-cusolver", "nvidia-cuda-cccl", "nvidia-cusparse", "nvidia-cudnn-cu13==9.*",
    ),
}  # fmt: skip

_PRELUDE = r"""
#include <cstdio>
#include <cstddef>
#include <type_traits>
template<class T> void kind() {
  char letter = std::is_pointer<T>::value ? 'p' : std::is_enum<T>::value ? 'e' : std::is_floating_point<T>::value ? 'f'
    : std::is_class<T>::value || std::is_union<T>::value ? 's' : std::is_signed<T>::value ? 'i' : 'u';
  printf(" %c%zu", letter, sizeof(T));
}
template<class F> struct Function;
template<class R, class... A> struct Function<R(A...)> {
  static void print(const char* name) {
    printf("function %s", name);
    int each[] = {0, (kind<A>(), 0)...};
    (void)each;
    printf("\n");
  }
};
#define TEXT(...) #__VA_ARGS__
#define CHOSEN(name) TEXT(name)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="The headers of NVIDIA's wheels against what rushlight calls.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--download", action="store_true", help="get the wheels that are not there yet")
    parser.add_argument("--only", nargs="*", default=sorted(LIBRARIES), help="the libraries whose rows are made anew")
    given = parser.parse_args()
    known: dict[str, Any] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if given.download:
        download(given.folder)
    for folder in sorted(f for f in given.folder.iterdir() if f.is_dir()):
        files = sorted([*folder.glob("*.whl"), *folder.glob("*.so.*")])
        known[folder.name] = known.get(folder.name, {}) | said_by(files, given.only)
    TABLE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def download(target: Path) -> None:
    """The wheels that are not there yet."""
    for version, requirements in WHEELS.items():
        folder = target / version
        folder.mkdir(parents=True, exist_ok=True)
        for requirement in requirements:
            if not any(folder.glob(f"{re.split('[=<>]', requirement)[0].replace('-', '_')}-*.whl")):
                pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), requirement]
                subprocess.run(pip, check=True)


def said_by(files: list[Path], only: list[str]) -> dict[str, Any]:
    """What the wheels of one version say, for each library whose headers are among them."""
    wheels = [f for f in files if f.suffix == ".whl"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        headers = Path(name)
        for wheel in wheels:
            _unpack(wheel, headers, r"/include/(?:cccl/)?(.*\.(?:h|hpp)|nv/.*)$")
        folders = sorted({p.parent for p in headers.rglob("*") if p.name in ("cuda.h", "nvToolsExt.h")} | {headers})
        for library, asked in ((name, LIBRARIES[name]) for name in only):
            if all(any((folder / h).exists() for folder in folders) for h in asked.headers):
                found[library] = _compiled(asked, folders)
            exports = _exports(asked, files)
            if exports is not None:
                found.setdefault(library, {})["exports"] = exports
        if "driver" in found:
            found["driver"]["since"] = _since(LIBRARIES["driver"], headers, folders)
    found["files"] = [file.name for file in files]
    return found


def _unpack(wheel: Path, target: Path, pattern: str) -> list[Path]:
    made = []
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            match = re.search(pattern, entry)
            if match:
                to = target / match.group(1)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(archive.read(entry))
                made.append(to)
    return made


# ***** headers *****


def _run(text: str, folders: list[Path], *options: str) -> str:
    """What a C++ program prints, or its text behind the preprocessor."""
    include = [f"-I{folder}" for folder in folders]
    with tempfile.TemporaryDirectory() as name:
        source, program = Path(name) / "asked.cpp", Path(name) / "asked"
        source.write_text(text)
        if options:
            return subprocess.run(
                ["g++", "-w", *include, *options, source], check=True, capture_output=True, text=True
            ).stdout
        subprocess.run(["g++", "-w", "-O0", *include, source, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def _compiled(asked: Asked, folders: list[Path]) -> dict[str, Any]:
    includes = "".join(f"#include <{h}>\n" for h in asked.headers)
    every = (
        f"#define __CUDA_API_VERSION_INTERNAL\n{includes}" if asked.names else includes
    )  # older symbols of cuda.h, too
    text, macros = _run(every, folders, "-E", "-P"), _run(every, folders, "-E", "-dM")
    declared = [f for f in asked.functions if re.search(rf"\b{f}\s*\(", text)]
    constants = [c for c in asked.constants if re.search(rf"\b{c}\b", text) or re.search(rf"#define {c}\b", macros)]
    structures = {name: _newest(name, text) for name in asked.structures}
    lines = [f'Function<std::remove_pointer<decltype(&{f})>::type>::print("{f}");' for f in declared]
    lines += [f'printf("constant {c} %lld\\n", (long long)({c}));' for c in constants]
    for name, real in structures.items():
        if real is not None:
            lines.append(f'printf("structure {name} {real} %zu\\n", sizeof({real}));')
            fields = asked.structures[name].fields.values()
            lines += [f'printf("field {name} {f} %zu\\n", offsetof({real}, {f}));' for f in fields]
    printed = _run(f"{every}{_PRELUDE}int main() {{\n" + "\n".join(lines) + "\n}\n", folders)
    found = _parsed(printed)
    if asked.names:
        chosen = [f'printf("chosen {s} %s\\n", CHOSEN({name}));' for s, name in asked.names.items()]
        printed = _run(f"{includes}{_PRELUDE}int main() {{\n" + "\n".join(chosen) + "\n}\n", folders)
        found["chosen"] = dict(line.split()[1:] for line in printed.splitlines())
    return found


def _newest(name: str, text: str) -> str | None:
    """The structure that a name of ours means: `X*` is the one of the highest number."""
    if not name.endswith("*"):
        return name if re.search(rf"\b{name}\b", text) else None
    numbers = {int(n or 0) for n in re.findall(rf"\b{name[:-1]}(\d*)\b", text)}
    return f"{name[:-1]}{max(numbers) or ''}" if numbers else None


def _parsed(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = {"functions": {}, "constants": {}, "structures": {}}
    for line in printed.splitlines():
        word, name, *rest = line.split()
        if word == "function":
            found["functions"][name] = " ".join(rest)
        elif word == "constant":
            found["constants"][name] = int(rest[0])
        elif word == "structure":
            found["structures"][name] = {"name": rest[0], "size": int(rest[1]), "fields": {}}
        else:
            found["structures"][name]["fields"][rest[0]] = int(rest[1])
    return found


def _since(asked: Asked, headers: Path, folders: list[Path]) -> dict[str, int]:
    """The version of CUDA in which each symbol of the driver came: that of the typedef of its name and its parameters.

    Typedefs of one name are in the order of the symbols' suffixes; `_v2` is the second, where there is a first.
    """
    text = "".join(
        (headers / h).read_text() for h in ("cudaTypedefs.h", "cudaProfilerTypedefs.h") if (headers / h).exists()
    )
    found = {}
    for symbol in asked.functions:
        name, _, suffix = symbol.partition("_v")
        versions = sorted({int(v) for v in re.findall(rf"\*PFN_{name}_v(\d+)\)", text)})
        if versions:
            lines = [
                f'printf("%d\\n", {v} * (int)std::is_same<decltype(&{symbol}), PFN_{name}_v{v}>::value);'
                for v in versions
            ]
            head = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n#include <cudaTypedefs.h>\n"
            if "PFN_cuProfiler" in text:
                head += "#include <cudaProfilerTypedefs.h>\n"
            same = [
                int(v)
                for v in _run(f"{head}{_PRELUDE}int main() {{" + "\n".join(lines) + "}", folders).split()
                if int(v)
            ]
            if same:
                found[symbol] = max(same) if suffix else min(same)
    return found


# ***** libraries *****


def _exports(asked: Asked, files: list[Path]) -> list[str] | None:
    """Which of the functions a library among the files exports; None where there is no such library."""
    names: set[str] | None = None
    for file in files:
        with tempfile.TemporaryDirectory() as name:
            pattern = rf"/({asked.file}[.\d]*)$"
            wheel = file.suffix == ".whl"
            for library in (
                _unpack(file, Path(name), pattern) if wheel else [file] * bool(re.search(pattern, str(file)))
            ):
                names = (names or set()) | _exported_by(library)
    return None if names is None else sorted(f for f in asked.functions if f in names)


def _exported_by(library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


if __name__ == "__main__":
    main()
