"""The command line with a `warm` that runs the kernels of two steps: to compile all of them takes minutes."""

from __future__ import annotations

from engine import warm
from tools import cli
from tools.kernels import native_gain

OURS = "tests.tools.kernels.few_kernels"

if __name__ == "__main__":
    vars(warm)["STEPS"] = (warm._warm_ends, warm._warm_index)
    vars(native_gain)["named"] = lambda module: OURS if module == "tools.cli" else module
    cli.main()
