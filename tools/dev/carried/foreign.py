"""Compiles every kernel for another kind of machine than this one, by numba with that machine as LLVM's target.

The kernels run here once: so it is known in which forms they are called. Then each form is compiled in a process that
takes itself for one of that machine's, and runs none. There all that the sources choose by the machine is that one's.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from ipc.machine import BASELINES

if TYPE_CHECKING:
    from tools.dev.carried.objects import Compiled


def triple_of(machine: str) -> str:
    """Return what LLVM calls Linux on such a machine."""
    return f"{machine}-unknown-linux-gnu"


def compile_all_for(machine: str) -> list[Compiled]:
    """Return what `compile_all` returns on a machine of that kind."""
    spawning = get_context("spawn")  # numba chooses its target when it is imported
    with ProcessPoolExecutor(1, spawning) as process:
        called = process.submit(_called).result()
    with ProcessPoolExecutor(1, spawning, take_for, (machine,)) as process:
        return process.submit(compile_forms, called).result()


def _called() -> list[tuple[str, Any]]:
    """Run all kernels; the names and the kinds of arguments of those that were loaded for that, or compiled."""
    from tools.dev.carried.objects import called_forms, run_all

    run_all()
    return sorted(((form.name, form.arguments) for form in called_forms()), key=str)


def take_for(machine: str) -> None:
    """Have this process compile for machines of that kind."""
    here, baseline = os.uname(), BASELINES[machine]
    vars(os)["uname"] = lambda: os.uname_result((*here[:4], machine))
    os.environ.update(NUMBA_CPU_NAME=baseline.name, NUMBA_CPU_FEATURES=baseline.features)
    from llvmlite import binding as llvm
    from numba.core import codegen

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    vars(llvm)["get_process_triple"] = lambda: triple_of(machine)
    vars(codegen)["JITCPUCodegen"] = _codegen(codegen)
    from ipc.compiled import kernel_folders

    vars(kernel_folders)["folder_of"] = lambda *_given: None  # what is kept there is for this machine


def _codegen(codegen: Any) -> Any:
    """Return numba's class that makes code, without what makes it ready to run."""

    class Library(codegen.JITCodeLibrary):  # type: ignore[misc]
        def get_pointer_to_function(self, _name: str) -> int:
            self._ensure_finalized()
            return 1  # nobody calls it

        def _finalize_specific(self) -> None:
            pass

    class Codegen(codegen.JITCPUCodegen):  # type: ignore[misc]
        _library_class = Library

        def _add_module(self, _module: Any) -> None:
            pass

        def set_env(self, _name: str, _environment: Any) -> None:
            pass

    return Codegen


def compile_forms(called: list[tuple[str, Any]]) -> list[Compiled]:
    """Return what Python can call of these forms and of all that they call, for the machine of `take_for`."""
    from ipc.compiled import compiler
    from tools.dev.carried.objects import called_forms, compiled_of, name_of

    kernels = {name_of(kernel): kernel for kernel in compiler.kernels()}
    for name, arguments in called:
        kernels[name].compile(arguments)
    return [compiled_of(form) for form in sorted(called_forms(), key=lambda form: form.symbol)]
