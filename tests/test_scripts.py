"""Every script explains itself, and refuses in one line what is wrong, before anything runs or is installed."""

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_constraints import PROMISED, pins

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), *ROOT.glob("scripts/slurm/*")])
NO_PROGRAMS = "/bin:/usr/bin"
"""Neither python nor ray of an environment: whatever a script would start fails."""


def call(script, *arguments, folder=ROOT, stdout=subprocess.PIPE, **environment):
    environment = {**os.environ, "PATH": NO_PROGRAMS, **environment}
    pipes = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(["bash", script, *arguments], cwd=folder, env=environment, **pipes)


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_help(script, flag, tmp_path):
    if flag == "-h" and script.suffix == ".sbatch":
        pytest.skip("sbatch takes it for itself")
    done = call(script, flag, folder=tmp_path, RUN=str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (0, "")
    first = script.read_text().splitlines()[1].removeprefix("# ")
    assert done.stdout.startswith(first)
    if script.match("train_*.sh"):
        assert "PRESET=" in done.stdout and "Exit codes: 0 done" in done.stdout and "Sourced" not in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("knob", ["STEPS=abc", "STEPS=0", "SEED=-1", "SETUP=yes"])
def test_a_bad_knob_of_the_quickstart_is_refused_before_its_first_step(knob, tmp_path):
    name, _, value = knob.partition("=")
    done = call("scripts/quickstart.sh", **{"RUN": str(tmp_path / "run"), "SETUP": "0", name: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quickstart.sh: error: {name} is ") and f"not '{value}'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_quickstart_trains_in_the_environment_that_it_made(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "recorder").write_text('#!/bin/sh\necho "$0 $*" >>calls\n')
    (tmp_path / "scripts/setup.sh").write_text("install -D recorder $VENV/bin/python\n")
    done = call("scripts/quickstart.sh", folder=tmp_path, PYTHON="/opt/bin/python3.12", VENV=".venv-gpu")
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 15 and all(line.startswith(f"{tmp_path}/.venv/bin/python ") for line in calls)


@pytest.mark.parametrize("argument", ["--steps", "60", "stepz", "-x=1"])
def test_an_argument_that_is_no_override_does_not_block_the_folder(argument, tmp_path):
    done = call("scripts/quickstart.sh", argument, RUN=str(tmp_path / "run"), SETUP="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quickstart.sh: error: no argument '{argument}'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "knobs", "exit_code", "reason"),
    [
        ([], {}, 3, "no NVIDIA GPU"),
        (["paper"], {"FLASH_ATTN": "source"}, 3, "the compiler of CUDA 12"),
        ([], {"PYTHON": "python-3.13"}, 3, "Python 3.13.5 is not supported"),
        ([], {"PYTHON": "python-of-nobody"}, 3, "no 'python-of-nobody' here"),
        ([], {"CHECK_MACHINE": "yes"}, 2, "CHECK_MACHINE is 0 or 1, not 'yes'"),
        (["sglang"], {}, 3, "SGLang needs g++ 13 or later"),
        (["sglang"], {"CUDA_HOME": "/none"}, 3, "'/none/bin/nvcc --version' does not say 'release 13'"),
        (["--force"], {}, 2, "no argument '--force': sglang, paper or none"),
        (["now"], {}, 2, "no argument 'now'"),
        (["paper", "more"], {}, 2, "no argument 'more'"),
    ],
)
def test_what_the_set_up_for_gpus_lacks_is_said_in_one_line(tmp_path, arguments, knobs, exit_code, reason):
    """No GPU here, the compiler of CUDA 13, and an old one of C++."""
    nvcc, python = "echo 'Cuda compilation tools, release 13.0, V13.0.88'", "[ $1 = -c ] && exit 1; echo Python 3.13.5"
    programs = {"nvidia-smi": "exit 9", "nvcc": nvcc, "g++": "echo 12", "python-3.13": python}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = call("scripts/setup_gpu.sh", *arguments, PATH=path, VENV=str(tmp_path / "venv"), **knobs)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert re.fullmatch(rf"setup_gpu\.sh: error: .*{re.escape(reason)}.*\n", done.stderr)
    assert not (tmp_path / "venv").exists()


@pytest.fixture
def set_up(tmp_path):
    """Calls the set-up with a stand-in for Python of a version that nobody has.

    Its environments are real, its pip and uv only say what is in ``said``, and note how they are called.
    """
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
  --version) echo "Python 3.11.99" ;;
  "-m venv "*) shift 2; {sys.executable} -m venv --without-pip "$@"
    for folder; do :; done; ln -sf {python} "$folder/bin/python" ;;
  "-m pip "*" config list") cat {tmp_path}/config ;;
  "-m pip "* | "-m uv "*)
    echo "$UV_DEFAULT_INDEX $*" >> {tmp_path}/calls; env >> {tmp_path}/variables
    echo "Collecting torch"; [ ! -e {tmp_path}/said ] || {{ cat {tmp_path}/said; exit 1; }} ;;
  *) exec {sys.executable} "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    (tmp_path / "config").touch()

    def run(stdout=subprocess.PIPE, **environment):
        knobs = {"PYTHON": str(python), "VENV": str(tmp_path / "venv"), "CHECK_MACHINE": "0", **environment}
        return call("scripts/setup_gpu.sh", stdout=stdout, **knobs)

    return run


def test_a_set_up_that_failed_names_the_package_and_is_made_anew(set_up, tmp_path):
    (tmp_path / "said").write_text("ERROR: The conflict is caused by: pymdown-extensions\n")
    failed = set_up()
    assert failed.returncode == 1 and "caused by: pymdown-extensions" in failed.stderr, failed.stderr
    left = tmp_path / "venv" / "half-installed"
    left.touch()
    (tmp_path / "said").unlink()
    assert set_up().returncode == 0 and not left.exists()
    left.touch()
    assert set_up().stdout == "" and left.exists(), "finished: nothing to do"


def test_a_terminal_shows_what_is_being_installed(set_up):
    terminal, output = pty.openpty()
    done = set_up(stdout=output)
    os.close(output)
    shown = os.read(terminal, 1 << 16).decode()
    assert done.returncode == 0 and "\r\x1b[K  Collecting torch" in shown and shown.endswith("\r\x1b[K")


def test_what_pip_is_set_to_is_told_to_uv(set_up, tmp_path):
    """Its own variable before its files. ``pip config list`` writes lines of a file as ``\\n``."""
    settings = [":env:.index-url='http://mirror/simple'", "global.index-url='http://site'"]
    settings += [r"global.extra-index-url='\nhttp://one\nhttp://two'", "install.find-links='/folder /other'"]
    settings += ["global.cert='/certificates'", "global.proxy='http://proxy'", "global.trusted-host='one two'"]
    (tmp_path / "config").write_text("\n".join(settings))
    assert set_up(SSL_CERT_FILE="", ALL_PROXY="").returncode == 0
    get_uv, *others = (tmp_path / "calls").read_text().splitlines()
    assert get_uv.startswith(" -m pip ") and "install --progress-bar off uv==" in get_uv
    assert len(others) == 3 and all(call.startswith("http://mirror/simple -m uv pip install") for call in others)
    told = {"UV_INDEX": "http://one http://two", "UV_INDEX_STRATEGY": "unsafe-best-match", "ALL_PROXY": "http://proxy"}
    told |= {"UV_FIND_LINKS": "/folder,/other", "UV_INSECURE_HOST": "one two", "SSL_CERT_FILE": "/certificates"}
    variables = (tmp_path / "variables").read_text().splitlines()
    assert {f"{name}={value}" for name, value in told.items()} <= set(variables)
    (tmp_path / "venv/.cobalt-setup").unlink()
    (tmp_path / "variables").unlink()
    assert set_up(UV_DEFAULT_INDEX="http://other", UV_INDEX="http://own").returncode == 0
    assert (tmp_path / "calls").read_text().splitlines()[-1].startswith("http://other -m uv")
    variables = (tmp_path / "variables").read_text()
    assert "UV_INDEX=http://own\n" in variables and "UV_INDEX_STRATEGY" not in variables, "one's own are uv's matter"


@pytest.mark.parametrize("is_of_an_older_lock", [False, True])
def test_a_finished_set_up_says_that_it_has_another_python(set_up, tmp_path, is_of_an_older_lock):
    assert set_up().returncode == 0
    if is_of_an_older_lock:
        (tmp_path / "venv/.cobalt-setup").write_text("another hash")
    (tmp_path / "venv/bin/python").unlink()
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    other = set_up()
    assert other.returncode == 2 and "has Python" in other.stderr and "unset PYTHON" in other.stderr


def test_a_folder_that_is_no_environment_is_left_alone(set_up, tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "mine").touch()
    refused = set_up()
    assert refused.returncode == 2 and "is not a Python environment" in refused.stderr
    assert (tmp_path / "venv" / "mine").exists()


def test_the_scripts_take_the_pythons_that_are_promised():
    told = re.findall(r"\(3, (\d+)\)", (ROOT / "scripts" / "lib" / "environment.sh").read_text())
    assert [f"3.{minor}" for minor in told] == [PROMISED[0], PROMISED[-1]]


def test_the_wheel_of_flash_attn_is_for_the_locked_torch():
    (of_wheel,) = re.findall(r"%2Bcu12torch([\d.]+?)cxx11abi", (ROOT / "scripts" / "setup_gpu.sh").read_text())
    assert pins("paper", "3.12")["torch"].startswith(f"{of_wheel}.")


@pytest.mark.parametrize("beginning", ["cpu", "gpu"])
def test_the_tutorial_has_the_same_settings_in_every_shell(beginning, tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()
    told = f"set -eu; source {ROOT}/docs/tutorial-{beginning}.sh; printenv MODEL PRESET; "
    told += 'echo $DATA $N $EXECUTION $ENGINE "${RAY_AUTH_TOKEN:-}"'
    shells = [subprocess.run(["bash", "-c", told], cwd=tmp_path, capture_output=True, text=True) for _ in range(2)]
    assert shells[0].returncode == 0 and shells[0].stdout == shells[1].stdout, shells[0].stderr
    assert "--engine" in shells[0].stdout and bool(re.search("[0-9a-f]{64}", shells[0].stdout)) == (beginning == "gpu")
