"""Compiles every kernel afresh, and returns what Python can call of them as object code for a library.

numba compiles for the process that runs, with addresses that are fixed. So each kernel's code is made once more from
its intermediate form, for any address, without what numba adds for its own calls.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from llvmlite import binding as llvm
from numba.core import config as numba_config

from engine.settings.config import from_mapping
from engine.warm import by_two, warm_up
from ipc.compiled import compiler
from tools.dev.carried.wrappers import Form, NoWrapper, check

OPTIMISATION = 3
config = vars(numba_config)
RUNTIME = "NRT_"  # begins the names of numba's own functions: one of each will do
NUMBER = re.compile(r"B\d+v\d+(?=B)")  # in a name: how many functions numba had compiled before


@dataclass(frozen=True)
class Compiled:
    """One form of a kernel: its module and name, its object code, and what its caller has to know."""

    name: str
    code: bytes
    form: Form


def compile_all() -> list[Compiled]:
    """Compile every kernel that a broker, its tools and its readers call; all its forms that Python can call.

    Raises RuntimeError for a kernel that was compiled before: it is loaded without its intermediate form.
    """
    compiled: dict[str, Compiled] = {}
    wanted: set[str] = set()
    for forms, needed in by_two(_compile):
        compiled.update(forms)
        wanted |= needed
    if missing := sorted(wanted - compiled.keys()):
        raise RuntimeError(f"{missing[0]} was loaded: only what is compiled here can be linked")
    return [compiled[symbol] for symbol in sorted(compiled)]


def _compile(*, backwards: bool = False) -> tuple[dict[str, Compiled], set[str]]:
    """Run all kernels. Return by symbol those forms that the other process had not compiled before, and all symbols."""
    run_all(backwards=backwards)
    called = list(called_forms())
    return {form.symbol: compiled_of(form) for form in called if form.is_new}, {form.symbol for form in called}


def run_all(*, backwards: bool = False) -> None:
    """Run every kernel that a broker, its tools and its readers call."""
    with tempfile.TemporaryDirectory() as scratch:
        config = from_mapping({"regionPath": scratch, "storePathRootDir": scratch})
        warm_up(config, verification=True, backwards=backwards)


@dataclass(frozen=True)
class Called:
    """A form of a kernel that Python can call: numba's arguments and result; new if this process compiled it."""

    name: str
    arguments: Any
    result: Any
    is_new: bool

    @property
    def symbol(self) -> str:
        """Return what its code is called in any build."""
        return f"{self.name}.{crc32(str(self.arguments).encode()):08x}"


def called_forms() -> Iterator[Called]:
    """Yield all forms of this process that Python can call."""
    for kernel in compiler.kernels():
        for arguments, result in kernel.overloads.items():
            if _can_be_called(result):
                yield Called(name_of(kernel), arguments, result, arguments in kernel.stats.cache_misses)


def name_of(kernel: Any) -> str:
    """Return a kernel's module and name."""
    return f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"


def _can_be_called(result: Any) -> bool:
    try:
        check(result.fndesc.argtypes, result.fndesc.restype)
    except NoWrapper:
        return False
    return True


def compiled_of(called: Called) -> Compiled:
    """Return the object code of a form that was compiled here."""
    described = called.result.fndesc
    packer = called.result.target_context.get_arg_packer(described.argtypes)
    parts = tuple(str(part) for part in packer.argument_types)
    form = Form(called.symbol, tuple(described.argtypes), described.restype, parts)
    return Compiled(called.name, _object_code(called.result.library, described.llvm_func_name, called.symbol), form)


def _object_code(library: Any, entry: str, symbol: str) -> bytes:
    """Return the code of a kernel with all that it calls, for any address. Its `entry` is called `symbol` there."""
    module = llvm.parse_bitcode(library._final_module.as_bitcode())
    _name_alike(module, entry, symbol)
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=config["CPU_NAME"], features=config["CPU_FEATURES"], opt=OPTIMISATION, reloc="pic", codemodel="small"
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(OPTIMISATION)))
    code: bytes = machine.emit_object(module)
    return code


def _name_alike(module: Any, entry: str, symbol: str) -> None:
    """Give everything the name that it has in any build, and show the linker only the entry.

    numba numbers functions in the order in which it compiles them, and calls constants by addresses.
    """
    for function in module.functions:
        if function.name == entry:
            function.name = symbol
        elif not function.is_declaration and not function.name.startswith(RUNTIME):
            function.linkage, function.name = "internal", NUMBER.sub("", function.name)  # LLVM tells equals apart
    for number, variable in enumerate(module.global_variables):
        if not variable.is_declaration:
            variable.linkage, variable.name = "internal", f"constant.{number}"
