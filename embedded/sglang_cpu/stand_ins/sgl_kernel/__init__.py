"""Stands in for sglang-kernel, which is published as a CUDA build only.

SGLang imports a few of its names for speculative decoding whatever the device is. Without AMX nothing else of it is
used on a CPU: attention and layers run in plain torch. Every name exists; calling one is an error.
"""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU version")

    return kernel
