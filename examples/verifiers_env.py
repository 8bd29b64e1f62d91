"""Cobalt's turns, executor and reward as an environment of ``verifiers`` (examples/README.md says how to run it).

Each turn of a conversation is a trace of its own, with its exact prompt and its reward. Public tests give the feedback.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import openai
import verifiers.v1 as vf  # pyright: ignore[reportMissingImports] - in an environment of its own
from transformers import AutoTokenizer

from cobalt.cli.prompt_flags import PromptsConfig
from cobalt.errors import InfraError
from cobalt.extraction import extract_code
from cobalt.inference.conversation import history_text
from cobalt.prompts import described, feedback_message, feedback_to_policy, first_messages, prompts_of, with_feedback
from cobalt.records import read_jsonl
from cobalt.rewards import thinking_of, tokenizer_counter, training_reward
from cobalt.sandbox import Executor, TestCases

__all__ = ["CobaltEnv", "CobaltTaskset", "OneAnswer"]
load_tokenizer = cache(AutoTokenizer.from_pretrained)


class ProblemData(vf.TaskData):
    instruction: str
    test_cases: str
    public_test_cases: str
    prompts: Any  # the prompt set of the file, as its manifest says; Cobalt's own without one


class Problem(vf.Task[ProblemData, vf.State, vf.TaskConfig]): ...


class ProblemsConfig(vf.TasksetConfig):
    problems: str = "data/taco_verified_filtered_train.jsonl"  # of preproc/preproc_taco.py


class CobaltTaskset(vf.Taskset[Problem, ProblemsConfig]):
    def load(self) -> Iterator[Problem]:
        fields = ("instruction", "test_cases", "public_test_cases")
        prompts = described(PromptsConfig().prompt_set([Path(self.config.problems)]))
        for row in read_jsonl(self.config.problems, ("id", *fields)):
            data = ProblemData(id=str(row["id"]), prompts=prompts, **{name: row[name] for name in fields})
            yield Problem(data, self.config.task)


class OneAnswer(vf.Harness[vf.HarnessConfig]):
    """One request with the task's messages, from this process. The model has no tools."""

    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data) -> vf.ProgramResult:
        messages = [{"role": message.role, "content": message.content} for message in data.prompt]
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)  # pyright: ignore[reportArgumentType]
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class CobaltConfig(vf.EnvConfig):
    tokenizer: str = ""  # directory or hub name: whose tokens the reward counts; default: the policy's
    num_turns: int = 8  # after the first program
    policy: vf.AgentConfig = vf.AgentConfig(runtime={"type": "subprocess"})


class CobaltEnv(vf.Env[CobaltConfig]):
    async def start(self) -> None:
        self.executor = Executor()
        await self.executor.start()

    async def stop(self) -> None:
        await self.executor.close()

    async def run(self, task: Problem, agents: vf.Agents) -> None:
        prompts = prompts_of(task.data.prompts)
        messages, best = first_messages(task.data.instruction, prompts), 0.0
        tokenizer = load_tokenizer(self.config.tokenizer or agents.policy.config.model)
        count_tokens, thinking = tokenizer_counter(tokenizer), thinking_of(tokenizer)
        public, tests = TestCases.parse(task.data.public_test_cases), TestCases.parse(task.data.test_cases)
        for _ in range(self.config.num_turns + 1):
            prompted = ProblemData(**{**dict(task.data), "prompt": messages})
            trace = await agents.policy.run(Problem(prompted, task.config))
            if not trace.ok:
                return
            code = extract_code(response := trace.assistant_messages[-1].content or "")
            shown, judged = await self.executor.run_many([(code, public), (code, tests)])
            rate = judged.pass_rate
            if rate is None or shown.infra_error is not None:  # no verdict: the episode fails, and can be run again
                raise InfraError(judged.infra_error or shown.infra_error or "")
            parts = training_reward(response, None if code is None else rate, best, count_tokens, thinking=thinking)
            trace.record_reward("cobalt", parts.total)
            trace.record_metric("pass_rate", rate)
            best = max(best, rate)
            answer = {"role": "assistant", "content": history_text(response, enable_thinking=True)}
            messages += [answer, feedback_message(feedback_to_policy(with_feedback(shown, public), prompts), prompts)]
