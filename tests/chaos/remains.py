"""What is left on this machine: the runner's exit records beside what was metered, processes, folders, outputs."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from shared.backends.local import layout
from tests.chaos.load import Load
from tests.chaos.stand import Stand
from tests.chaos.verdict import Verdict
from tests.e2e.stacks import processes_with

_STAGED: Final = re.compile(r"e[\d.]+(\.part)?")


def exit_records(stand: Stand, jobs: Container[str]) -> Iterator[dict[str, Any]]:
    """Each end of these jobs that the runner recorded, once also where its record is released at this moment."""
    seen: set[int] = set()
    for folder in (layout.OPEN, f"{layout.RELEASED}/*"):
        for path in stand.place.local.glob(f"{folder}/*.{layout.EXIT}.json"):
            if _job_of(path) not in jobs:
                continue
            with suppress(FileNotFoundError), path.open() as file:  # moved since: it is among the released ones
                if (inode := os.fstat(file.fileno()).st_ino) not in seen:
                    seen.add(inode)
                    yield json.load(file)


def _job_of(record: Path) -> str | None:
    split = layout.split_record_name(record.name)
    return None if split is None else split[0].split(".")[1]


def metered_once(stand: Stand, load: Load, segments: list[Any], verdict: Verdict) -> None:
    """The segments are those that the runner recorded, and the lines that other systems get add up to them."""
    measured: dict[str, int] = defaultdict(int)
    runs: Counter[str] = Counter()
    for record in exit_records(stand, load.wanted):
        if record["ran"]:
            job = record["job"]
            runs[job] += 1
            span = datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["started_at"])
            measured[job] += round(span.total_seconds() * 1000) * load.wanted[job].gpus
    verdict.wrong += [f"the runner recorded {times} ends of {job}" for job, times in runs.items() if times > 1]
    kept = added_up(segments)
    told = added_up({"job": line.job, "gpu_milliseconds": line.gpu_milliseconds} for line in stand.usage_lines())
    periods = Counter(row["job"] for row in segments if row["started_at"] is not None)
    ran = load.ran()
    for job in load.wanted:
        if periods[job] > 1:
            verdict.wrong.append(f"{job} has {periods[job]} segments")
        if ran[f"{job} 1"] > runs[job]:
            verdict.unrecorded.add(job)
        if job in verdict.casualties | verdict.unrecorded:
            if kept[job] != told[job]:
                verdict.left.append(f"{job} has no recorded end, segments of {kept[job]} ms and lines of {told[job]}")
            continue
        if (kept[job], told[job]) != (measured[job], measured[job]):
            verdict.left.append(
                f"{job} held GPUs for {measured[job]} ms, has segments of {kept[job]} and lines of {told[job]}"
            )


def added_up(rows: Iterable[Any]) -> dict[str, int]:
    """GPU time by job."""
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        sums[row["job"]] += row["gpu_milliseconds"] or 0
    return sums


def nothing_on_this_machine(stand: Stand, load: Load, verdict: Verdict) -> None:
    files = (stand.place.local / layout.OPEN).glob("*.json")
    opened = [file.name for file in files if _job_of(file) in load.wanted]
    verdict.left += [f"{name} is still among the open records" for name in opened]
    verdict.left += [f"process {pid} of a job still runs" for pid in processes_with(str(load.ledger))]


def one_staging_area(stand: Stand, load: Load, row: Mapping[str, Any], verdict: Verdict) -> None:
    """Of all that was staged and copied, only what was published is there."""
    work = Path(layout.attempt_directory(str(stand.place.local), row["tenant"], row["job"], row["attempt"]))
    found = {entry.name for entry in work.iterdir()} if work.is_dir() else set()
    staged = {name for name in found if _STAGED.fullmatch(name)}
    published = {Path(row["directory"]).name} if row["directory"] else set()
    if staged - published:
        verdict.areas.append(f"{row['job']} has {sorted(staged)} staged, and {sorted(published)} published")
    store = stand.place.blobs / row["tenant"] / "outputs" / row["job"]
    files = {str(file.relative_to(stand.place.blobs)) for file in store.rglob("*") if file.is_file()}
    if row["manifest"] is None:
        verdict.areas += [f"{row['job']} published no outputs, and {name} is stored" for name in sorted(files)]
        return
    manifest = json.loads((stand.place.blobs / row["manifest"]).read_text())
    named = {row["manifest"], *(manifest["prefix"] + one["path"] for one in manifest["files"])}
    verdict.areas += [f"{row['job']} has {name} stored, which its manifest does not name" for name in files - named]
    content = load.wanted[row["job"]].content(row["job"])
    for name in named - {row["manifest"]}:
        if (stand.place.blobs / name).read_text() != content:
            verdict.wrong.append(f"{name} holds something else than {row['job']} wrote")
