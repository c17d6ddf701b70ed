"""The two kinds of arrays that kernels and shared memory are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.int64]  # native, one a cache-coherent 64-bit word
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
