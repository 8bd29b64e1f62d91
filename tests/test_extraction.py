"""The extraction rule (docs/method.md, "Extraction"), case by case."""

import pytest

from cobalt.extraction import extract_code


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("```c++\nx\n```", None),
        ("``` python\nx\n```", None),
        ("```python\n```", ""),
        ("no block", None),
        ("```python\nunclosed", None),
        ("<think>```python\na\n```</think>```python\nb\n```", "b"),
        ("```python\nprint('```')\n```", "print('"),
    ],
)
def test_last_block_left_to_right(response: str, program: str | None) -> None:
    assert extract_code(response) == program
