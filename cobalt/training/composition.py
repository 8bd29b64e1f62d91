"""veRL's configuration, as hydra composes it of its files and ours."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

CONFIG_NAME = "ppo_trainer"


def composed(overrides: Sequence[str], config_dir: Path | None, config_name: str = CONFIG_NAME, **options: Any) -> Any:
    """veRL's configuration under ``overrides``. ``config_dir``: of our recipes and presets (``--config-dir``).

    veRL is not imported: it chooses its platform as it is, by environment variables that the configuration decides.
    """
    search = [] if config_dir is None else [f"hydra.searchpath=['file://{config_dir.absolute()}']"]
    verl: Any = find_spec("verl")
    with initialize_config_dir(str(Path(verl.origin).with_name("trainer") / "config"), version_base=None):
        return compose(config_name, [*search, *overrides], **options)


@cache
def defaults(config_name: str) -> Any:
    """veRL's own configuration, resolved."""
    return OmegaConf.create(OmegaConf.to_container(composed([], None, config_name), resolve=True))
