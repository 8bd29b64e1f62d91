"""The errors that a user meets. They stand in ``cobalt.sandbox``, which can be used without the rest of the package."""

from cobalt.sandbox.errors import CobaltError, InfraError, InputError, SetupError

__all__ = ["CobaltError", "InfraError", "InputError", "SetupError"]
