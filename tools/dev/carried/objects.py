"""Compiles every kernel afresh, and returns what Python can call of them as object code for a library.

numba compiles for the process that runs, with addresses that are fixed. So each kernel's code is made once more from
its intermediate form, for any address, without what numba adds for its own calls.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

from llvmlite import binding as llvm
from numba.core import config as numba_config

from engine.settings.config import from_mapping
from engine.warm import warm_up
from ipc.compiled import compiler
from tools.dev.carried.wrappers import Form, NoWrapper, check

OPTIMISATION = 3
config = vars(numba_config)
FOR_NUMBA = ("_ZN7cpython", "cfunc.")  # how the names begin of what numba itself calls a kernel by


@dataclass(frozen=True)
class Compiled:
    """One form of a kernel: its module and name, its object code, and what its caller has to know."""

    name: str
    code: bytes
    form: Form


def compile_all() -> list[Compiled]:
    """Compile every kernel that a broker, its tools and its readers call; all its forms that Python can call."""
    with tempfile.TemporaryDirectory() as scratch:
        warm_up(from_mapping({"regionPath": scratch, "storePathRootDir": scratch}), verification=True)
    forms = []
    for kernel in compiler.kernels():
        if kernel.stats.cache_hits:
            raise RuntimeError(f"{kernel.py_func.__qualname__} was loaded: only what is compiled here can be linked")
        name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"
        forms += [_form(name, result) for result in kernel.overloads.values() if _can_be_called(result)]
    return forms


def _can_be_called(result: Any) -> bool:
    try:
        check(result.fndesc.argtypes, result.fndesc.restype)
    except NoWrapper:
        return False
    return True


def _form(name: str, result: Any) -> Compiled:
    described = result.fndesc
    packer = result.target_context.get_arg_packer(described.argtypes)
    parts = tuple(str(part) for part in packer.argument_types)
    form = Form(described.llvm_func_name, tuple(described.argtypes), described.restype, parts)
    return Compiled(name, _object_code(result.library), form)


def _object_code(library: Any) -> bytes:
    """Return the code of a kernel with all that it calls, for any address."""
    module = llvm.parse_bitcode(library._final_module.as_bitcode())
    for function in module.functions:
        if function.name.startswith(FOR_NUMBA) and not function.is_declaration:
            function.linkage = "internal"
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=config["CPU_NAME"], features=config["CPU_FEATURES"], opt=OPTIMISATION, reloc="pic", codemodel="small"
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(OPTIMISATION)))
    code: bytes = machine.emit_object(module)
    return code
