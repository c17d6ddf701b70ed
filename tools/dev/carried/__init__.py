"""Makes the compiled code that the package carries: kernels by numba, functions of the interpreter's around them."""
