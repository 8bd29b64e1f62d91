"""What the sampler needs to be installed, looked at before it is imported; the extra ``hf`` says the same."""

from importlib.metadata import PackageNotFoundError, version

from cobalt.errors import SetupError

OLDEST = {"torch": (2, 6), "transformers": (4, 57)}
"""transformers: the first whose caches are made of layers as the sampler's are."""


def refuse_missing_packages() -> None:
    """Raise ``SetupError`` if one of ``OLDEST`` is not installed, or older."""
    for name, oldest in OLDEST.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = None
        if found is None or tuple(map(int, found.split(".")[:2])) < oldest:
            raise SetupError(
                f"sampling from Hugging Face models needs {name} {'.'.join(map(str, oldest))} or later, and here is "
                f"{found or 'none'}: pip install --constraint constraints/hf.txt -e '.[hf]', in another environment"
            )
