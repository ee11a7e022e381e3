"""Train a classifier on the handwritten digits that ship inside scikit-learn.

Writes into the job's output directory: a checkpoint per round, the model, its accuracy, and a confusion matrix.
"""

import json
import os
import pickle
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

ROUNDS = 5
EPOCHS_PER_ROUND = 8


def main() -> None:
    """Train in rounds, checkpoint after each, and judge the model on data that it has not seen."""
    out = Path(os.environ.get("TIDEGATE_OUTPUT_DIR", "."))
    for folder in ("checkpoints", "model", "report"):
        (out / folder).mkdir(exist_ok=True)
    print(
        f"job {os.environ.get('TIDEGATE_JOB_ID')} attempt {os.environ.get('TIDEGATE_ATTEMPT')}, GPU "
        f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'none')}",
        flush=True,
    )

    images, labels = load_digits(return_X_y=True)
    seen, unseen, seen_labels, unseen_labels = train_test_split(
        images / 16.0, labels, test_size=0.25, random_state=7, stratify=labels
    )
    model = MLPClassifier(hidden_layer_sizes=(128,), random_state=7, max_iter=EPOCHS_PER_ROUND, warm_start=True)
    classes = sorted(set(labels))
    for number in range(1, ROUNDS + 1):
        for _ in range(EPOCHS_PER_ROUND):
            model.partial_fit(seen, seen_labels, classes=classes)
        (out / "checkpoints" / f"round-{number}.pkl").write_bytes(pickle.dumps(model))
        print(f"round {number}/{ROUNDS}: loss {model.loss_:.4f}", flush=True)

    guesses = model.predict(unseen)
    accuracy = float(accuracy_score(unseen_labels, guesses))
    (out / "model" / "digits.pkl").write_bytes(pickle.dumps(model))
    (out / "report" / "accuracy.json").write_text(
        json.dumps({"accuracy": round(accuracy, 4), "tested_on": len(unseen_labels)}) + "\n"
    )
    ConfusionMatrixDisplay.from_predictions(unseen_labels, guesses, colorbar=False).figure_.savefig(
        out / "report" / "confusion-matrix.png", dpi=110, bbox_inches="tight"
    )
    print(f"accuracy {accuracy:.4f} on {len(unseen_labels)} digits it had not seen", flush=True)


if __name__ == "__main__":
    main()
