"""Links object code and the functions around it to the library that the package carries, and lists what it is of."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from ipc.compiled.carried import LIBRARY, LIST, digest_of
from ipc.compiled.sources import files_of
from ipc.module_names import SOURCES
from tools.dev.carried.objects import Compiled
from tools.dev.carried.wrappers import Entry, text_of
from tools.dev.packaging.places import folder_of

HERE = Path(__file__).parent
OPTIONS = (
    "-O2",
    "-Wall",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wl,-Bsymbolic,--build-id=none,--strip-debug,--discard-locals",
)


def write_library(compiled: Sequence[Compiled], machine: str, cc: str) -> int:
    """Write the library for that kind of machine, and its list, to its folder; return the library's bytes.

    `cc` is the command that compiles C for it.
    """
    by_name: dict[str, Entry] = {}
    for each in compiled:
        by_name.setdefault(each.name, Entry(each.name)).forms.append(each.form)
    entries = [by_name[name] for name in sorted(by_name)]
    library = _linked([each.code for each in compiled], entries, cc)
    modules = {SOURCES / (entry.name.rpartition(".")[0].replace(".", "/") + ".py") for entry in entries}
    files = {file.relative_to(SOURCES).as_posix() for module in modules for file in files_of(module)}
    listed = {
        "kernels": {entry.name: entry.classes for entry in entries},
        "library": sha256(library).hexdigest(),
        "machine": machine,
        "sources": {name: digest_of(SOURCES / name) for name in sorted(files)},
    }
    folder = folder_of(machine)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((LIBRARY, library), (LIST, (json.dumps(listed, indent=1) + "\n").encode())):
        beside = folder / f".{name}.{os.getpid()}"
        beside.write_bytes(content)
        beside.rename(folder / name)
    return len(library)


def _linked(codes: Sequence[bytes], entries: Sequence[Entry], cc: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="slipstream-link-") as directory:
        scratch = Path(directory)
        parts = [(HERE / "carried.c").read_text(), text_of(entries), (HERE / "module.c").read_text()]
        (scratch / "carried.c").write_text("\n".join(parts))
        objects = [f"{number:03}.o" for number in range(len(codes))]
        for name, code in zip(objects, codes, strict=True):
            (scratch / name).write_bytes(code)
        includes = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
        command = [cc, *OPTIONS, *includes, "-o", LIBRARY, "carried.c", *objects]
        subprocess.run(command, check=True, cwd=scratch, timeout=600)
        return (scratch / LIBRARY).read_bytes()
