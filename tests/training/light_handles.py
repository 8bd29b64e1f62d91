"""With Ray's own processes: what one answers and imports that gets the handles of stand-ins, and how those end."""

import json
import sys

import heavy_actor
import ray

from cobalt.training.cluster import first_killed
from cobalt.training.early import StartedServers


def ask(handles):
    answers = ray.get([ask.remote() for handle in handles for ask in (handle.later, handle.now)])
    return answers, "heavy_actor" in sys.modules


def error_of(servers):
    try:
        servers.options(name="early wrong", scheduling_strategy=None, max_concurrency=2).remote(value=-1)
    except ValueError as error:
        return str(error)


def death_of(actor):
    try:
        ray.get(actor.generate.remote())
    except Exception as error:
        return type(error).__name__


ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
servers = StartedServers(heavy_actor.Heavy)
for name in ("early", "early wrong"):
    servers.start(name, max_concurrency=2)
made = [
    servers.options(name=name, scheduling_strategy=None, max_concurrency=2).remote(value=value)
    for value, name in enumerate(("early", "late"))
]
answers = ray.get(ray.remote(ask).remote(made))
killed = death_of(made[0]), first_killed()[0]
print(json.dumps([*answers, error_of(servers), killed]))
