"""aiohttp's server without its client, which most sidecars never use.

`import aiohttp` imports the client, and that reads the system's certificates while it is imported: a tenth of a
second and several megabytes at every start. The server's modules need nothing of the package but its version, so the
package itself can wait until somebody asks for one of its names.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGE: Final = "aiohttp"


def leave_client_out() -> None:
    """Have `aiohttp` be imported in parts, until a name of its own is asked for; then it is imported whole.

    Does nothing where it is imported already. Modules of ours must name the submodule that they need
    (`from aiohttp.web_server import Server`), or they bring the whole in.
    """
    spec = find_spec(PACKAGE) if PACKAGE not in sys.modules else None
    if spec is None:
        return
    package: Any = module_from_spec(spec)
    package.__version__ = _version(spec)
    package.__getattr__ = _Finder(package)
    sys.modules[PACKAGE] = package


def _version(spec: ModuleSpec) -> str:
    """Return what the package's own code says first; its metadata would cost another megabyte, and is asked last."""
    source: str = cast("Any", spec.loader).get_source(PACKAGE) or ""
    said = re.search('^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if said is not None:
        return said[1]
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return version(PACKAGE)


class _Finder:
    """Finds what is missing in the package: one of its modules, or else all that its own code defines."""

    def __init__(self, package: ModuleType) -> None:
        self._package = package

    def __call__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{PACKAGE}.{name}"
        if find_spec(whole) is not None:
            return import_module(whole)
        package: Any = self._package
        del package.__getattr__
        package.__spec__.loader.exec_module(package)
        return getattr(package, name)
