"""Following a job live: a line when a stage passes, its log lines while it runs, its end."""

import threading
from collections.abc import Sequence
from typing import Final

from services.cli.escapes import marked, printable
from services.cli.output import but_the_state, err, out, write
from services.cli.render import show_job, stage_line
from services.cli.waiting import told_since
from shared.client.client import Tidegate
from shared.client.errors import ClientError
from shared.client.views import JobView
from shared.lifecycle.record import Stage
from shared.lifecycle.states import StageName, StageStatus, State

_OVER: Final = (StageStatus.PASSED, StageStatus.FAILED)
_END: Final = (StageName.RUNNING_JOB, StageName.STOPPING_CLUSTER)


def follow(client: Tidegate, job_id: str, *, since: JobView | None = None) -> JobView:
    """Print what happens (after `since`) until the job has ended, through every attempt; the finished job. An attempt's
    log lines come before the lines of its end."""
    stages = StageLines()
    attempt = 1 if since is None else since.attempt
    printer = _LogPrinter(client, job_id, attempt)
    for told, news in told_since(client, job_id, since):
        job = client.job(job_id, patient=True)
        if told["attempt"] > attempt or told["state"] == State.PAUSED:
            _print_end(stages, printer, job, attempt)
        _print(news)
        if told["attempt"] > attempt:
            attempt = told["attempt"]
            printer = _LogPrinter(client, job_id, attempt)
        _print(stages.new(job, attempt, but=_END))
        if _began(job, attempt):
            printer.start()
    job = client.job(job_id, patient=True)
    printer.start()
    _print_end(stages, printer, job, attempt)
    return job


def _print_end(stages: "StageLines", printer: "_LogPrinter", job: JobView, attempt: int) -> None:
    _print(stages.new(job, attempt, but=_END))
    if _began(job, attempt):
        printer.start()
    printer.finish()
    _print(stages.new(job, attempt))


def _began(job: JobView, attempt: int) -> bool:
    """Whether the attempt's command was started."""
    return any(stage.name is StageName.RUNNING_JOB and stage.started_at is not None for stage in _stages(job, attempt))


def _stages(job: JobView, attempt: int) -> Sequence[Stage]:
    if attempt == job.attempt:
        return job.stages
    return next((one.stages for one in job.attempts if one.number == attempt), ())


def finish(job: JobView, *, shown: bool) -> int:
    """The exit code of a command that waited for `job`: 0 where it succeeded, else 1 with its reason on the screen."""
    if job.state == "SUCCEEDED":
        if not shown:
            show_job(job)
        return 0
    said = but_the_state(job.state, job.message)
    err.print(f"[bold red]{job.state}[/]: {marked(said)}" if said else job.state)
    for finding in job.findings[1:]:
        err.print(f"  {marked(finding.place)}: {marked(finding.message)}")
    if job.hint:
        err.print(f"what to do: {marked(job.hint)}")
    return 1


class StageLines:
    """Which lines about stages are still to be said: a stage once when it is over in an attempt, a closed gate whenever
    its sentence changes."""

    def __init__(self) -> None:
        self._over: set[tuple[int, StageName]] = set()
        self._gate = ""

    def new(self, job: JobView, attempt: int, but: Sequence[StageName] = ()) -> list[str]:
        """The lines that `job` adds about an attempt; the stages in `but` can wait."""
        lines = []
        for stage in _stages(job, attempt):
            key = (attempt, stage.name)
            if stage.name in but or key in self._over:
                continue
            if stage.status in _OVER or (stage.status is StageStatus.SKIPPED and stage.started_at is not None):
                self._over.add(key)
                lines.append(stage_line(stage))
            elif stage.status is StageStatus.ACTIVE and stage.name is StageName.QUEUED and job.gate is not None:
                said, self._gate = self._gate, stage.waiting_on or ""
                if said != self._gate:
                    lines.append(stage_line(stage))
        return lines


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        out.print(line)


class _LogPrinter:
    """Prints an attempt's output from a thread of its own, with a connection of its own."""

    def __init__(self, client: Tidegate, job_id: str, attempt: int) -> None:
        self._endpoint = client.endpoint
        self._job_id = job_id
        self._attempt = attempt
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to print; the second call does nothing."""
        if not self._threads:
            self._threads = [threading.Thread(target=self._run, args=(s,), daemon=True) for s in ("stdout", "stderr")]
            for thread in self._threads:
                thread.start()

    def finish(self, timeout_seconds: float = 20) -> None:
        """Wait until everything that it wrote is printed."""
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _run(self, stream: str) -> None:
        rest = b""
        try:
            with Tidegate(self._endpoint, answered=True) as client:
                for chunk in client.logs(self._job_id, stream=stream, follow=True, attempt=self._attempt):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        _print_log_line(line)
            if rest:
                _print_log_line(rest)
        except ClientError as error:
            again = f"tidegate logs -f {self._job_id}" + ("" if stream == "stdout" else f" --{stream}")
            err.print(f"its {stream} cannot be shown: {marked(str(error))}; all of it is in `{again}`")


def _print_log_line(line: bytes) -> None:
    text = printable(line.decode("utf-8", "backslashreplace").rstrip("\r"), keep="\t")
    prefix = "\x1b[2m    │\x1b[0m " if out.is_terminal else "    | "
    write(f"{prefix}{text}\n")
