"""The real evaluator app is killed in the middle of a batch, and kept away for a while."""

import asyncio
import contextlib
import threading
import time

import psutil
import pytest
from http_calls import status_of
from online_parts import MODEL, make_manager, make_trajectory
from own_serve import own_serve
from ray import serve
from transformers import AutoTokenizer
from waiting import wait_for

from cobalt.sandbox.selftest import examine
from cobalt.serving.app_settings import EvaluatorConfig
from cobalt.serving.evaluator import build_app

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
async def test_a_killed_evaluator_costs_time_and_no_sample(evaluator):
    if examine("namespaces").missing is not None and examine("landlock").missing is not None:
        pytest.skip("no sandbox here")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    code = "import time\ntime.sleep(0.1)\nn = int(input())\nprint(0 if n % 2 else {})"
    programs = [code.format(-1 - index) for index in range(RESPONSES)]  # distinct ones, which pass every second test
    responses = [f"```python\n{program}\n```" for program in programs]
    context = {"extra_info": {"prev_best_pass_rate": 0.25}}
    rows = [make_trajectory(tokenizer, [response], **context) for response in responses]
    manager = make_manager(tokenizer, executor="serve")
    killed = []
    thread = threading.Thread(target=kill_replicas, args=(evaluator, killed))
    thread.start()
    infos = [scored["reward_extra_info"] for scored in await asyncio.gather(*map(manager.run_single, rows))]
    assert len(killed) == 1, "the batch ended before its evaluator did"
    thread.join()
    assert [(info["infra"], info["pass_rate"]) for info in infos] == [(0, 0.5)] * RESPONSES
