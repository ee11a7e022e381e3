"""Following a job live: a line when a stage passes, its log lines while it runs, its end."""

import sys
import threading

from services.cli.output import err, out
from services.cli.render import show_job, stage_line
from shared.client.client import Tidegate
from shared.client.errors import ClientError
from shared.client.views import JobView
from shared.lifecycle.states import StageName, StageStatus

_DONE = (StageStatus.PASSED, StageStatus.FAILED)


def follow(client: Tidegate, job_id: str, *, logs: bool = True) -> JobView:
    """Print what happens until the job has ended; the finished job."""
    printer = _LogPrinter(client, job_id) if logs else None
    said: dict[StageName, str] = {}
    for event in client.events(f"/v1/jobs/{job_id}/events"):
        if event.event in ("reset", "deleted"):
            continue
        job = client.job(job_id)
        _print_stages(job, said)
        if printer is not None and job.started_at is not None:
            printer.start()
    if printer is not None:
        printer.start()
        printer.finish()
    job = client.job(job_id)
    _print_stages(job, said)
    return job


def finish(job: JobView, *, shown: bool) -> int:
    """The exit code of a command that waited for `job`: 0 where it succeeded, else 1 with its reason on the screen."""
    if job.state == "SUCCEEDED":
        if not shown:
            show_job(job)
        return 0
    err.print(f"[bold red]{job.state}[/]: {job.message}" if job.message else job.state)
    for finding in job.findings[1:]:
        err.print(f"  {finding.place}: {finding.message}")
    if job.hint:
        err.print(f"what to do: {job.hint}")
    return 1


def _print_stages(job: JobView, said: dict[StageName, str]) -> None:
    """A stage is said once when it is over; a closed gate whenever its sentence changes."""
    for stage in job.stages:
        held = stage.status is StageStatus.ACTIVE and stage.name is StageName.QUEUED and job.gate is not None
        word = stage.waiting_on or "" if held else stage.status.value
        if (held or stage.status in _DONE) and said.get(stage.name) != word:
            said[stage.name] = word
            out.print(stage_line(stage))


class _LogPrinter:
    """Prints a job's output from a thread of its own, with a connection of its own."""

    def __init__(self, client: Tidegate, job_id: str) -> None:
        self._endpoint = client.endpoint
        self._job_id = job_id
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to print; the second call does nothing."""
        if not self._threads:
            self._threads = [threading.Thread(target=self._run, args=(s,), daemon=True) for s in ("stdout", "stderr")]
            for thread in self._threads:
                thread.start()

    def finish(self, timeout_seconds: float = 20) -> None:
        """Wait until everything that the job wrote is printed."""
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _run(self, stream: str) -> None:
        rest = b""
        try:
            with Tidegate(self._endpoint) as client:
                for chunk in client.logs(self._job_id, stream=stream, follow=True):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        _print_log_line(line)
            if rest:
                _print_log_line(rest)
        except ClientError as error:
            err.print(f"its {stream} cannot be shown: {error}", markup=False)


def _print_log_line(line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip("\r")
    prefix = "\x1b[2m    │\x1b[0m " if out.is_terminal else "    | "
    sys.stdout.write(f"{prefix}{_printable(text)}\n")
    sys.stdout.flush()


def _printable(text: str) -> str:
    """Control characters (a hostile job could drive the terminal with them) are shown escaped; tabs stay."""
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
