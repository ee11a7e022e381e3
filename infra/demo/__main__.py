"""`make demo`: train, export and evaluate a model as a pipeline of real jobs, followed live, its outputs read back."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
JOB = Path(__file__).resolve().parent / "digits"
OUTPUTS = REPOSITORY / "demo-outputs"
TIDEGATE = Path(sys.executable).with_name("tidegate")
WANTED_ACCURACY = 0.95
ONE_THREAD = "OMP_NUM_THREADS=1"  # for matrices this small, more threads only wait for each other


def main() -> int:
    """Start (or find) the stack, run the steps, fetch the outputs, say what they say; 0 when the accuracy is good."""
    environ = {name: value for name, value in os.environ.items() if name not in ("TIDEGATE_URL", "TIDEGATE_TOKEN")}

    def tidegate(*words: str, capture: bool = False) -> str:
        stdout = subprocess.PIPE if capture else None
        ended = subprocess.run([TIDEGATE, *words], env=environ, stdout=stdout, text=True, check=False)
        if ended.returncode != 0:
            print(f"\nthe demo ends here: `tidegate {' '.join(words)}` exited with {ended.returncode}", file=sys.stderr)
            print(f"look at: {TIDEGATE} ls, and {TIDEGATE} ps", file=sys.stderr)
            sys.exit(1)
        return ended.stdout or ""

    print("== 1. the stack: PostgreSQL, nats-server and six services on this machine", flush=True)
    tidegate("up", "--detach")
    print("\n== 2. a pipeline: train a digits classifier on one GPU, then export it, then evaluate it", flush=True)
    outputs = [word for pattern in ("model/**", "report/**") for word in ("--out", pattern)]
    steps = [word for name in ("export.py", "eval.py") for word in ("--then", shlex.join([sys.executable, name]))]
    tidegate(
        "submit", "--name", "train", "--gpus", "1", "--dir", str(JOB), "--env", ONE_THREAD, *outputs, *steps,
        "--follow", "--", sys.executable, "train.py",
    )  # fmt: skip
    pipeline: dict[str, Any] = json.loads(tidegate("pipelines", "--limit", "1", "--json", capture=True))[0]
    jobs = [json.loads(tidegate("show", step["job"], "--json", capture=True)) for step in pipeline["steps"]]
    train, last = jobs[0]["id"], jobs[-1]["id"]

    print("\n== 3. the outputs of the last step, copied back and verified", flush=True)
    shutil.rmtree(OUTPUTS, ignore_errors=True)
    tidegate("outputs", "get", last, "--to", str(OUTPUTS))
    accuracy = float(json.loads((OUTPUTS / "report" / "accuracy.json").read_text())["accuracy"])

    print("\n== 4. what came of it")
    print(
        f"  accuracy     {accuracy:.4f} of the exported model (read back from {OUTPUTS / 'report' / 'accuracy.json'})"
    )
    print(f"  picture      {OUTPUTS / 'report' / 'confusion-matrix.png'}")
    print(f"  gpu_seconds  {sum(Decimal(job['gpu_seconds']) for job in jobs)}")
    print("\nwhat to try next:")
    print(f"  export PATH={shlex.quote(str(TIDEGATE.parent))}:$PATH")
    for line in (
        f"tidegate show {pipeline['id']}      # the three steps",
        f"tidegate show {train}      # the five stages of a step, with times",
        f"tidegate events {train}    # every event of it",
        "tidegate usage --by job                        # GPU time, by job",
        "tidegate submit --no-snapshot --follow -- sh -c 'echo hello; exit 3'",
        "tidegate down                                  # stop the stack; the jobs are there at the next `up`",
    ):
        print(f"  {line}")
    if accuracy < WANTED_ACCURACY:
        print(f"\nthe accuracy is below {WANTED_ACCURACY}: this is not what the demo should give", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
