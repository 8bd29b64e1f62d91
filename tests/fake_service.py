"""An execution service without sandboxes."""

import asyncio
from contextlib import asynccontextmanager

from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.serving.execution import ExecutionService


class FakeService:
    """Passes as many tests as the code says (``print(3)``: 3); ``fail`` in the code is an infra failure."""

    def __init__(self, delay_s=0.0):
        self.programs, self.running, self.most_running, self.delay_s = [], 0, 0, delay_s

    async def run(self, code, tests):
        self.programs.append(code)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        return self._result(code, len(TestCases.parse(tests)))

    def _result(self, code, count):
        if "fail" in (code or ""):
            return ExecutionResult.infra(count, "worker lost")
        passed = int(code.removeprefix("print(").removesuffix(")")) if code else 0
        passing = tuple(index < passed for index in range(count))
        failed = Verdict.NO_PROGRAM if code is None else Verdict.WRONG_ANSWER
        verdicts = tuple(Verdict.PASSED if value else failed for value in passing)
        return ExecutionResult(verdicts, ("",) * count, ("",) * count, cpu_s=0.5)

    def opener(self):
        @asynccontextmanager
        async def open_service(executor, max_in_flight=None, patient=False, **limits):
            yield ExecutionService(self, max_in_flight=max_in_flight)

        return open_service
