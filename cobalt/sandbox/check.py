"""``python -m cobalt.sandbox.check``: can programs be run safely on this machine? Exit code 3 if not.

Needs nothing but Python, so it can be run before anything is installed.
"""

import argparse
import sys

from cobalt.errors import SetupError
from cobalt.sandbox.selftest import choose_mode


def main() -> None:
    """Print the report, or nothing but what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="say nothing if a sandbox holds")
    arguments = parser.parse_args()
    try:
        mode = choose_mode()
    except SetupError as error:
        print(f"cobalt.sandbox.check: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if not arguments.quiet:
        print(f"sandbox mode {mode}")


if __name__ == "__main__":
    main()
