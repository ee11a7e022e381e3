"""Step 1: train a classifier on handwritten digits. Leaves the model, a checkpoint per round, and the losses."""

import json
import os
import pickle
from pathlib import Path

from data import digits  # type: ignore[import-not-found] # it lies beside this file, in the job's directory
from sklearn.neural_network import MLPClassifier

ROUNDS = 5
EPOCHS_PER_ROUND = 8


def main() -> None:
    """Train in rounds and checkpoint after each."""
    out = Path(os.environ.get("TIDEGATE_OUTPUT_DIR", "."))
    for folder in ("model/checkpoints", "report"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    print(
        f"job {os.environ.get('TIDEGATE_JOB_ID')} attempt {os.environ.get('TIDEGATE_ATTEMPT')}, GPU "
        f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'none')}",
        flush=True,
    )
    images, _, labels, _ = digits()
    model = MLPClassifier(hidden_layer_sizes=(128,), random_state=7, max_iter=EPOCHS_PER_ROUND, warm_start=True)
    classes = sorted(set(labels))
    losses = []
    for number in range(1, ROUNDS + 1):
        for _ in range(EPOCHS_PER_ROUND):
            model.partial_fit(images, labels, classes=classes)
        losses.append(round(float(model.loss_), 4))
        (out / "model" / "checkpoints" / f"round-{number}.pkl").write_bytes(pickle.dumps(model))
        print(f"round {number}/{ROUNDS}: loss {losses[-1]:.4f}", flush=True)
    (out / "model" / "digits.pkl").write_bytes(pickle.dumps(model))
    (out / "report" / "losses.json").write_text(json.dumps(losses) + "\n")


if __name__ == "__main__":
    main()
