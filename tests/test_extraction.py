"""How the program of a response is found (docs/method.md, "Extraction"), case by case."""

import time

import pytest

from cobalt.extraction import extract_code, rules_differ

READS = "print(sum(map(int, input().split())))"
LOOP = "for i in range(2):\n    print(i)"
DOCSTRING = 'def f():\n    """Use ```x``` like\n    ```python\n    f()\n    ```\n    """\nprint(f())'
HEAD_DOCSTRING = '"""\nRun it:\n```\npython a.py\n```\n"""\nprint(1)'


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("```python\n```", ""),
        ("no block", None),
        ("`print(1)`, <code>print(1)</code>", None),
        # the word behind the fence
        ("```python3.11\nprint(1)\n```", "print(1)"),
        ("```Python\nprint(1)\n```", "print(1)"),
        ("```py\nprint(1)\n```", "print(1)"),
        ("```python-3\nprint(1)\n```", "print(1)"),
        ("```python\nprint(1)\n```\n```python-repl\n>>> 1\n1\n```", "print(1)"),
        ("```python \nprint(1)\n```", "print(1)"),
        ("``` python\nprint(1)\n```", "print(1)"),
        ('```python title="a.py"\nprint(1)\n```', "print(1)"),
        ("```python:a.py\nprint(1)\n```", "print(1)"),
        ("```{.python}\nprint(1)\n```", "print(1)"),
        ("```c++\nint x;\n```", None),
        ("```bash\npip install numpy\n```", None),
        # other fences
        ("```python\r\nprint(1)\r\nprint(2)\r\n```\r\n", "print(1)\nprint(2)"),
        ("~~~python\nprint(~~~1)\n~~~", "print(~~~1)"),
        ("````python\nprint(1)\n````", "print(1)"),
        ("1. Code:\n   ```python\n   for i in range(2):\n       print(i)\n   ```", LOOP),
        ("1. ```python\n   for i in range(2):\n       print(i)\n   ```", LOOP),
        ("```python\n    for i in range(2):\n        print(i)\n```", LOOP),
        ("```python\n    import sys\nfor i in range(2):\n    print(i)\n```", f"import sys\n{LOOP}"),
        ("- So:\n  ```python\n  s = '''a\nb'''\n  print(s)\n  ```", "s = '''a\nb'''\nprint(s)"),
        ("The program: ```python\nprint(1)\n```", "print(1)"),
        ("````markdown\n```python\nprint(1)\n```\n````", "print(1)"),
        # where a block ends
        ("```python\nprint(1)\n", "print(1)"),
        ("```python\nprint(1)\n``", "print(1)"),
        ("```python\nprint(1)```", "print(1)"),
        ("```python\nprint(1)``` prints 1", "print(1)"),
        ("```python\nprint(1)\n``` That is all.", "print(1)"),
        ("```python\n```python\nprint(1)\n```\n```", "print(1)"),
        ("```python\nx = 1\nNo, better:\n```python\nprint(1)\n```", "print(1)"),
        ("```python\nprint('```')  # not '\n```", "print('```')  # not '"),
        ("```python\nprint(1)  # as in ```x```\n```", "print(1)  # as in ```x```"),
        (f"```python\n{DOCSTRING}\n```\nDone.", DOCSTRING),
        (f"```python\n{HEAD_DOCSTRING}\n```\nDone.", HEAD_DOCSTRING),
        ('```python\nx = """\n```\nThe string has no end.', 'x = """'),
        ("```python\nprint('a\u2028b')\n```", "print('a\u2028b')"),
        # which block it is
        (f"```python\n{READS}\n```\nTry it:\n```python\nprint(2)\n```", READS),
        ("```python\ndef f(): return 1\n```\nIt is called so:\n```python\nf()\n```", "def f(): return 1"),
        ("```python\nprint(1)\n```\nBetter:\n```python\nprint(2)\n```", "print(2)"),
        ("```python\nprint(1)\n```\nFor the input\n```\n1 2\n```\nit prints 3.", "print(1)"),
        ("```text\n1 2\n```\nIn Python:\n```python\nprint(1)\n```", "print(1)"),
        ("```python\nprint(1)\n```\nOnce more:\n```python\npri", "print(1)"),
        # what comes after the thinking
        ("<think>```python\na\n```</think>```python\nb\n```", "b"),
        ("<think>```python\nprint('draft')\n```</think>\nI could not solve it.", None),
        ("<think>```python\nprint('draft')\n```\nWait", None),
        ("<think>start\n```python\nx=1\nhmm, no.</think>\n```python\nprint(1)\n```", "print(1)"),
        ("<think>I must use ```python fences.</think>\n```python\nprint(1)\n```", "print(1)"),
        ("<think>The form is\n```\ncode</think>\n```python\nprint(1)\n```", "print(1)"),
        ("<think>a</think>\n```python\nprint('</think>')\n```\nIt prints `</think>`.", "print('</think>')"),
        ("<think>a</think>\n```python\nprint(1)\n```\nI used </think> above.", "print(1)"),
        ("<think>I end with </think> here</think>\n```python\nprint(1)\n```", "print(1)"),
        ("<think> a </think> b\n```python\nprint(1)\n```", "print(1)"),
    ],
)
def test_program_of_a_response(response: str, program: str | None) -> None:
    assert extract_code(response) == program


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("```c++\nx\n```", None),
        ("``` python\nx\n```", None),
        ("```python\n```", ""),
        ("```python\nunclosed", None),
        ("<think>```python\na\n```</think>```python\nb\n```", "b"),
        ("<think>```python\na\n```</think>no", "a"),
        ("```python\nprint(1)\n```\n```\n1 2\n```", "1 2"),
        ("```python\nprint('```')\n```", "print('"),
    ],
)
def test_released_rule_takes_the_last_block_from_left_to_right(response: str, program: str | None) -> None:
    assert extract_code(response, "released") == program
    assert rules_differ(response) is (extract_code(response) != program)


@pytest.mark.parametrize(
    "response",
    [
        "```python\n" * 9000,
        "```\n```\n" * 9000,
        "`" * 90_000 + "x",
        "a ~~~ " * 15_000,
        '```\n"""\n```\n' * 6000 + "'''",
    ],
)
def test_a_long_response_is_read_in_one_pass(response: str) -> None:
    started = time.process_time()
    extract_code(response)
    assert time.process_time() - started < 2, "0.1 s on an idle core"
