"""`make demo`: a real training job on the embedded stack, followed live, its outputs copied back and read."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
JOB = Path(__file__).resolve().parent / "digits"
OUTPUTS = REPOSITORY / "demo-outputs"
TIDEGATE = Path(sys.executable).with_name("tidegate")
WANTED_ACCURACY = 0.95


def main() -> int:
    """Start (or find) the stack, train, fetch the outputs, say what they say; 0 when the accuracy is good enough."""
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
    print("\n== 2. the job: train a digits classifier on one GPU, and follow its five stages", flush=True)
    outputs = [word for pattern in ("checkpoints/**", "model/**", "report/**") for word in ("--out", pattern)]
    python = sys.executable
    tidegate(
        "submit", "--name", "train", "--gpus", "1", "--dir", str(JOB), *outputs, "--follow", "--", python, "train.py"
    )
    job: dict[str, Any] = json.loads(tidegate("ls", "--limit", "1", "--json", capture=True))[0]

    print("\n== 3. its outputs, copied back and verified", flush=True)
    shutil.rmtree(OUTPUTS, ignore_errors=True)
    tidegate("outputs", "get", job["id"], "--to", str(OUTPUTS))
    accuracy = float(json.loads((OUTPUTS / "report" / "accuracy.json").read_text())["accuracy"])

    print("\n== 4. what came of it")
    print(f"  accuracy     {accuracy:.4f} (read back from {OUTPUTS / 'report' / 'accuracy.json'})")
    print(f"  picture      {OUTPUTS / 'report' / 'confusion-matrix.png'}")
    print(f"  gpu_seconds  {job['gpu_seconds']}")
    print("\nwhat to try next:")
    print(f"  export PATH={shlex.quote(str(TIDEGATE.parent))}:$PATH")
    for line in (
        f"tidegate show {job['id']}      # the five stages, with times",
        f"tidegate events {job['id']}    # every event of it",
        "tidegate usage --by job                    # GPU time, by job",
        "tidegate submit --no-snapshot --follow -- sh -c 'echo hello; exit 3'",
        "tidegate down                              # stop the stack; the jobs are there at the next `up`",
    ):
        print(f"  {line}")
    if accuracy < WANTED_ACCURACY:
        print(f"\nthe accuracy is below {WANTED_ACCURACY}: this is not what the demo should give", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
