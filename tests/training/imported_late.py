"""``cobalt train`` up to Ray: was veRL imported before all was checked, and which platform does it choose?"""

import os
import sys

from cobalt.training import hydra_main, launch
from cobalt.training.cluster import process_variables


def train(config, *_):
    launch.checked(config)
    print("verl" in sys.modules)
    os.environ |= process_variables(config)
    from verl.plugin.platform import get_platform

    from cobalt.training import runner  # noqa: F401

    print(get_platform().device_name)


hydra_main.train = train
hydra_main.main()
