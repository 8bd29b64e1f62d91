"""The real evaluator app is killed in the middle of a batch, and kept away for a while."""

import contextlib
import threading
import time

import psutil
import pytest
from http_calls import status_of
from online_parts import MODEL, make_batch
from own_serve import own_serve
from ray import serve
from transformers import AutoTokenizer
from waiting import wait_for

from cobalt.sandbox.selftest import examine
from cobalt.serving.app_settings import EvaluatorConfig
from cobalt.serving.evaluator import build_app
from cobalt.training.manager import CobaltRewardManager
from cobalt.training.scoring import compute_score

RESPONSES, AWAY_S = 64, 1


def kill_replicas(url, killed):
    """Kill the replicas once programs wait there, and hold their replacements for ``AWAY_S`` seconds."""
    wait_for(lambda: status_of(url)["queue_depth"])

    def replicas():
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if " ".join(process.cmdline()).startswith("ray::ServeReplica:evaluator:Evaluator"):
                    yield process

    for process in list(replicas()):
        process.kill()
        killed.append(process)
    held, until = set(), time.monotonic() + AWAY_S
    while time.monotonic() < until:
        for process in set(replicas()) - held - set(killed):
            process.suspend()
            held.add(process)
        time.sleep(0.01)
    for process in held:
        process.resume()


@pytest.fixture
def evaluator():
    with own_serve(num_cpus=4) as url:
        serve.run(build_app(EvaluatorConfig(workers=2, num_cpus=0)), name="evaluator", route_prefix="/evaluator")
        yield f"{url}/evaluator"


@pytest.mark.slow
@pytest.mark.ci
def test_a_killed_evaluator_costs_time_and_no_sample(evaluator):
    if examine("namespaces").missing is not None and examine("landlock").missing is not None:
        pytest.skip("no sandbox here")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    code = "import time\ntime.sleep(0.1)\nn = int(input())\nprint(0 if n % 2 else {})"
    programs = [code.format(-1 - index) for index in range(RESPONSES)]  # distinct ones, which pass every second test
    responses = [f"```python\n{program}\n```" for program in programs]
    batch = make_batch(tokenizer, responses, prev_best=0.25, uid=[index // 16 for index in range(RESPONSES)])
    manager = CobaltRewardManager(tokenizer, 0, compute_score, executor="serve")
    killed = []
    thread = threading.Thread(target=kill_replicas, args=(evaluator, killed))
    thread.start()
    info = manager(batch, return_dict=True)["reward_extra_info"]
    assert len(killed) == 1, "the batch ended before its evaluator did"
    thread.join()
    assert sum(info["infra"]) == 0
    assert sum(rate == 0.5 for rate in info["pass_rate"]) == RESPONSES
