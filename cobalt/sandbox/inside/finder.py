"""Where programs find top-level modules: in a list made outside, since the directories that hold them cannot be listed.

Submodules are found as ever, in the directories of their packages.
"""

import _frozen_importlib_external as importlib_parts  # pyright: ignore[reportMissingImports] - importlib is larger
import sys


class ListedModules:
    """A finder for ``{name: file or package directory}``."""

    def __init__(self, paths):
        self.paths = paths

    def find_spec(self, name, path=None, target=None):
        found = self.paths.get(name) if path is None else None
        if found is None:
            return None
        if found.endswith((".py", ".pyc", ".so")):
            return importlib_parts.spec_from_file_location(name, found)
        file = f"{found}/__init__.py"
        return importlib_parts.spec_from_file_location(name, file, submodule_search_locations=[found])


def install(paths):
    """Ask for ``paths`` before the directories of ``sys.path``, and forget what was listed of those."""
    sys.meta_path.insert(-1, ListedModules(paths))
    sys.path_importer_cache.clear()
