"""``--push_to_hub``: what every upload to the Hugging Face hub has in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cobalt.errors import SetupError


@contextmanager
def hub_upload(repo_id: str, hint: str = "", **kind: Any) -> Iterator[Any]:
    """The hub's API, for uploads to a repository that is made, and private, if need be; ``kind``: its ``repo_type``.

    What fails is a ``SetupError`` of one line, with ``hint`` at its end.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(repo_id, private=True, exist_ok=True, **kind)
        yield api
    except (OSError, ValueError) as error:  # among them what the hub answers, and names that it refuses
        reason = str(error).strip().partition("\n")[0]
        raise SetupError(f"--push_to_hub {repo_id}: {reason}{hint}") from None
