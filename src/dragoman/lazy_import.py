"""Modules that a dependency imports and this server never uses: they are loaded when somebody looks into them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


class _LazyModule(ModuleType):
    """Stands for a module until one of its names is asked for."""

    def __getattr__(self, name: str) -> object:
        module = import_module(self.__name__)
        self.__dict__.update(module.__dict__)
        return getattr(module, name)


@contextmanager
def lazy_imports(*names: str) -> Iterator[None]:
    """Import in the block what imports these modules; whoever imports them outside of it gets them at once.

    (`importlib.util.LazyLoader` is loaded by the import statement itself before Python 3.12.)
    """
    late = [name for name in names if name not in sys.modules and find_spec(name) is not None]
    sys.modules.update({name: _LazyModule(name) for name in late})
    try:
        yield
    finally:
        for name in late:
            del sys.modules[name]
