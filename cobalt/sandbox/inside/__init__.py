"""The half of a worker that lives inside the sandbox. These files are started by path with ``python -S`` and see the
standard library only. Every test forks this process and pays for its pages, so each import is weighed. Code here may
trust the worker that drives it, and nothing else."""
