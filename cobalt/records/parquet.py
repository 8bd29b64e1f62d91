"""What pyarrow says of a parquet file, as an error that names the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cobalt.errors import InputError, first_line


@contextmanager
def parquet_errors(path: str | Path, advice: str = "") -> Iterator[None]:
    """Raise ``InputError`` where ``path``, which is read in the body, is no parquet file, or a damaged one."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the file system; pyarrow's own have no number
            raise
        raise InputError.at(path, None, f"not a parquet file, or damaged: {first_line(error)}{advice}") from None
