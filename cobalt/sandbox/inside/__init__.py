"""The half of a worker that lives inside the sandbox.

These files are started by path with ``python -S`` and see nothing of the project: standard library only, each import
weighed, because every test forks this process and pays for its pages. Code here may trust the worker that drives it,
and nothing else.
"""
