"""A worker process, and how to wait until it has really stopped."""

import json
import os
import pathlib
import subprocess
import time


class WorkerError(Exception):
    """What a worker answered instead of a result."""


class Worker:
    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | (environment or {}))
        hello = self.ask(do="hello")
        self.name, self.version, self.compiler = hello["name"], hello["version"], hello.get("compiler")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args}: ended with {self.process.wait()} at {request}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def cpu_seconds(self):
        """Of all its threads; None where the system doesn't say."""
        total = 0
        try:
            for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError):
            return None
        return total * 1e-9

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def wait_until_idle(workers, limit=2.0, step=0.01):
    """Threads of a pool spin for a while after the last call, and would take a core from the next worker.

    Waits until all the workers together use less than 2 % of a core; seconds that it took."""
    start = time.perf_counter()
    while time.perf_counter() - start < limit:
        before = [worker.cpu_seconds() for worker in workers]
        time.sleep(step)
        after = [worker.cpu_seconds() for worker in workers]
        if None in before + after:
            time.sleep(0.3)  # longer than any pool here was seen to spin
            break
        if sum(after) - sum(before) < 0.02 * step:
            break
    return time.perf_counter() - start - step
