"""``cobalt train`` up to its import of veRL: with which variables?"""

import os
import sys
from importlib.machinery import PathFinder

from cobalt.training import hydra_main


class Ends:
    """Finds veRL, whose folder has the configuration, and ends the program where it or its first user is imported."""

    def find_spec(self, name, path, _target=None):
        if name not in ("verl", "cobalt.training.runner"):
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = self
        return spec

    def create_module(self, _spec): ...

    def exec_module(self, _module):
        print(os.environ.get("VERL_PLATFORM"), os.environ.get("VERL_USE_EXTERNAL_MODULES"))
        sys.exit()


sys.meta_path.insert(0, Ends())
hydra_main.main()
