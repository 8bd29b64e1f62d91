"""A name for a model that changes when its weights do, although its path may not."""

import hashlib
from importlib.metadata import version
from pathlib import Path

from cobalt.errors import InputError

BLOCKS, BLOCK_BYTES = 512, 1 << 15
"""Of each file, from its beginning to its end: small files whole, and of large ones some of every layer."""
HUB_TIMEOUT_S = 10.0
IDENTITY_SUFFIXES = {".json", ".safetensors", ".bin", ".model", ".txt", ".jinja"}


def model_identity(model: str, revision: str | None = None) -> str:
    """``name@fingerprint`` of a model directory, ``name[@revision]`` of a hub model.

    The fingerprint covers sizes and evenly spaced blocks of configuration, tokenizer and weight files.
    """
    path = Path(model)
    if not path.is_dir():
        return f"{model}@{revision}" if revision else model
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()):
        if file.suffix in IDENTITY_SUFFIXES:
            size = file.stat().st_size
            digest.update(f"{file.name}:{size}:".encode())
            with open(file, "rb") as stream:
                for start in range(0, size, max(size // BLOCKS, BLOCK_BYTES)):
                    stream.seek(start)
                    digest.update(stream.read(BLOCK_BYTES))
    return f"{path.resolve().name}@{digest.hexdigest()[:12]}"


def hub_errors() -> tuple[type[Exception], ...]:
    """What the hub's answers and a missing network raise: since version 1 its client uses httpx, requests before."""
    if version("huggingface_hub").startswith("0."):
        return (OSError,)
    from httpx import HTTPError

    return (OSError, HTTPError)


def refuse_missing_model(model: str, setting: str) -> None:
    """Raise ``InputError``, within seconds, unless ``model`` is a folder of one, or known to the hub or its cache.

    ``setting``: how the model was given, for the complaint. Loading asks the hub for a mistyped folder for minutes.
    """
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(f"{setting}{model}: this folder holds no model (no config.json)")
        return
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        if isinstance(try_to_load_from_cache(model, "config.json"), str):
            return
        if not HF_HUB_OFFLINE:
            HfApi().model_info(model, timeout=HUB_TIMEOUT_S)
            return
        trouble = "its cache has none, and HF_HUB_OFFLINE is set"
    except HFValidationError:
        trouble = "it is no name there"
    except HfHubHTTPError:
        trouble = "it has none of this name that you may read"
    except hub_errors():
        trouble = "it cannot be reached, and its cache has none"
    raise InputError(f"{setting}{model}: no such folder; as a name of the hub: {trouble}")
