"""The packages that the sampler needs, checked before they are imported. The extra ``hf`` asks for the same."""

from importlib.metadata import PackageNotFoundError, version

from cobalt.errors import SetupError

OLDEST = {"torch": (2, 6), "transformers": (4, 57)}
"""From this version on, the caches of transformers are made of layers, as the sampler's are."""


def refuse_missing_packages() -> None:
    """Raise ``SetupError`` if one of ``OLDEST`` is not installed, or older."""
    for name, oldest in OLDEST.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = None
        if found is None or tuple(map(int, found.split(".")[:2])) < oldest:
            raise SetupError(
                f"sampling from Hugging Face models needs {name} {'.'.join(map(str, oldest))} or later, but "
                f"{found or 'none'} is installed. In another environment: "
                "pip install --constraint constraints/hf.txt -e '.[hf]'"
            )
