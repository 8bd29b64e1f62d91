"""A multi-turn run with the scripted engine, to be killed: seeded_run.py INPUT OUTPUT."""

import asyncio
import sys
from pathlib import Path

from scripted import MultiplyingService, ScriptedEngine, long_tailed, make_plan, run_plan

if __name__ == "__main__":
    engine = ScriptedEngine(max_in_flight=16, latency_s=long_tailed)
    plan = make_plan(Path(sys.argv[1]), Path(sys.argv[2]), num_completions=4, num_turns=4, enable_thinking=True)
    asyncio.run(run_plan(plan, engine, MultiplyingService()))
