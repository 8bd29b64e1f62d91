"""The packages that the sampler needs, checked before they are imported. The extra ``hf`` asks for the same."""

from importlib.metadata import PackageNotFoundError, version

from cobalt.errors import SetupError

OLDEST = {"torch": (2, 6), "transformers": (4, 57)}
"""From this version on, the caches of transformers are made of layers, as the sampler's are."""
NEWER = {"transformers": (6,)}
"""Its caches are made in another way."""


def refuse_missing_packages() -> None:
    """Raise ``SetupError`` if one of ``OLDEST`` is not installed, older, or one of ``NEWER``."""
    for name, oldest in OLDEST.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = None
        parts = tuple(map(int, (installed or "0.0").split(".")[:2]))
        is_newer = name in NEWER and parts >= NEWER[name]
        if is_newer or parts < oldest:
            wanted = f"below {NEWER[name][0]}" if is_newer else f"{'.'.join(map(str, oldest))} or later"
            raise SetupError(
                f"sampling from Hugging Face models needs {name} {wanted}, but {installed or 'none'} is installed. "
                "In another environment: pip install --constraint constraints/hf.txt -e '.[hf]'"
            )
