"""The studies: experiments of many policies that use ``cobalt`` and live beside it. ``cobalt study NAME`` runs one."""
