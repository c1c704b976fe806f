"""Deferred imports, for modules that a dependency imports and this server never uses."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


class _LazyModule(ModuleType):
    """A placeholder that imports the module when one of its attributes is first read."""

    def __getattr__(self, name: str) -> object:
        module = import_module(self.__name__)
        self.__dict__.update(module.__dict__)
        return getattr(module, name)


@contextmanager
def lazy_imports(*names: str) -> Iterator[None]:
    """Defer the import of these modules by the code in the block; other importers get them as usual.

    `importlib.util.LazyLoader` is not an option: before Python 3.12 the import statement itself loads the module.
    """
    deferred = [name for name in names if name not in sys.modules and find_spec(name) is not None]
    sys.modules.update({name: _LazyModule(name) for name in deferred})
    try:
        yield
    finally:
        for name in deferred:
            del sys.modules[name]
