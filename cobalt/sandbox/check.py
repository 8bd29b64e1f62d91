"""``cobalt sandbox check``: can programs be run safely on this machine? Exit code 3 if not.

Needs nothing but Python, so it can be run before anything is installed.
"""

import argparse
import os
import platform
import sys

from cobalt.errors import SetupError
from cobalt.sandbox import readable
from cobalt.sandbox.modes import MODES, REMEDIES
from cobalt.sandbox.selftest import CONTAINED, ModeReport, choose_mode, examine


def main() -> None:
    """Print the report; with ``--quiet`` nothing but what is missing."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="say nothing if a sandbox holds")
    if parser.parse_args().quiet:
        _check_quietly(parser.prog)
    else:
        _print_report()


def _check_quietly(program: str) -> None:
    try:
        choose_mode()
    except SetupError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _print_report() -> None:
    reports = [examine(mode) for mode in MODES]
    print(f"Linux {platform.release()} {platform.machine()}, user {os.getuid()}, {readable.interpreter()}")
    for report in reports:
        _print_mode(report)
    chosen = next((report.mode for report in reports if report.missing is None), None)
    if chosen is None:
        print("Programs will not be run on this machine.")
        sys.exit(SetupError.exit_code)
    print(f"Programs run in mode {chosen}.")


def _print_mode(report: ModeReport) -> None:
    contained = sum(outcome == CONTAINED for outcome in report.probes.values())
    if report.missing is None:
        print(f"mode {report.mode}: holds, {contained} escape probes contained")
        return
    print(f"mode {report.mode}: {report.missing}")
    for name, outcome in report.probes.items():
        if outcome != CONTAINED:
            print(f"  {name}: {outcome}")
    print(f"  {REMEDIES[report.mode]}")


if __name__ == "__main__":  # also without the console command: this is the first thing that runs on a machine
    main()
