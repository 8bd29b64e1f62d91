"""Our own experiments: they use ``cobalt`` and live beside it. ``python -m research NAME`` runs one."""
