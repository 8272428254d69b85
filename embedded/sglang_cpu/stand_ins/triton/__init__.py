"""Stands in for Triton: importable, never launched. The real one takes 1 GB.

SGLang imports Triton and decorates kernels with it whatever the device is, but with `--device cpu` none of them runs.
So decorators give back the function, any other lower-case name is a submodule with the same manners, and capitalised
names are classes, since some are subclassed or caught.
"""

import importlib.machinery
import sys
import types

__version__ = "3.9.0"


class _Anything(types.ModuleType):
    """A module, a decorator, a decorator factory and a false value, whichever is asked of it."""

    def __init__(self, spec):
        super().__init__(spec.name)
        self.__path__ = []
        self.__spec__ = spec

    def __getattr__(self, name):
        return _attribute(self, name)

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda function: function

    def __getitem__(self, _):
        return self

    def __bool__(self):
        return False


class _Importer:
    """Finds every `triton.*` module."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("triton."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Anything(spec)

    def exec_module(self, module):
        """There is no code to run."""


def _attribute(module, name):
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    if name[0].isupper():
        base = Exception if name.endswith(("Error", "Resources")) else object
        value = type(name, (base,), {"__module__": module.__name__, "__init__": lambda self, *args, **kwargs: None})
    else:
        value = importlib.import_module(f"{module.__name__}.{name}")
    setattr(module, name, value)
    return value


def __getattr__(name):
    return _attribute(sys.modules[__name__], name)


def cdiv(dividend, divisor):
    """The quotient, rounded up. Called on the host side too."""
    return -(-dividend // divisor)


def next_power_of_2(number):
    """The smallest power of two that is at least `number`. Called on the host side too."""
    return 1 << max(number - 1, 0).bit_length()


class _ConstantExpression:
    """`tl.constexpr` is called and subclassed on import."""

    def __init__(self, value=None):
        self.value = value


sys.meta_path.insert(0, _Importer())
importlib.import_module("triton.language").constexpr = _ConstantExpression
