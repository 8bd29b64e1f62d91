"""What `--help` shows first."""

import re

import pytest

from cobalt.__main__ import HELP, load_command
from cobalt.cli import entry

COMMANDS = [name for name in HELP if load_command(name)[0] is not None]


@pytest.mark.parametrize("name", COMMANDS)
def test_required_flags_come_first(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    config_type, _ = load_command(name)
    assert config_type is not None
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        entry.parse(config_type)
    assert ended.value.code == 0
    options = capsys.readouterr().out.partition("options")[2]
    flags = re.split(r"\n│ (?=-)", options)[2:]  # behind the rule and --help
    required = ["(required)" in " ".join(flag.split()) for flag in flags]
    assert required == sorted(required, reverse=True)


def test_the_console_lists_twenty_commands_at_most() -> None:
    assert len(HELP) <= 20
