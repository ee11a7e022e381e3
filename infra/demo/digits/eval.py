"""Step 3: judge the exported model on digits that it has not seen. Leaves its accuracy and a confusion matrix."""

import json
import os
from pathlib import Path

import joblib  # type: ignore[import-untyped] # it ships no types
import matplotlib as mpl

mpl.use("Agg")
from data import digits  # type: ignore[import-not-found] # it lies beside this file, in the job's directory
from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score


def main() -> None:
    """Read what the step before left, write into `report`."""
    out = Path(os.environ.get("TIDEGATE_OUTPUT_DIR", "."))
    model = joblib.load(out / "model" / "digits.joblib")
    _, images, _, labels = digits()
    guesses = model.predict(images)
    accuracy = float(accuracy_score(labels, guesses))
    (out / "report" / "accuracy.json").write_text(
        json.dumps({"accuracy": round(accuracy, 4), "tested_on": len(labels)}) + "\n"
    )
    shown = ConfusionMatrixDisplay.from_predictions(labels, guesses, colorbar=False)
    shown.ax_.set_title(f"{len(labels)} unseen digits, accuracy {accuracy:.4f}")
    shown.figure_.savefig(out / "report" / "confusion-matrix.png", dpi=110, bbox_inches="tight")
    print(f"accuracy {accuracy:.4f} on {len(labels)} digits it had not seen", flush=True)


if __name__ == "__main__":
    main()
