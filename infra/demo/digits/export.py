"""Step 2: export the trained model for use: what only training needs is left out."""

import os
import pickle
from pathlib import Path

import joblib  # type: ignore[import-untyped] # it ships no types

TRAINING_ONLY = ("_optimizer", "_random_state", "loss_curve_")


def main() -> None:
    """Read what the step before left, write `model/digits.joblib`."""
    out = Path(os.environ.get("TIDEGATE_OUTPUT_DIR", ".")) / "model"
    trained = (out / "digits.pkl").read_bytes()
    model = pickle.loads(trained)  # noqa: S301 - the step before wrote it
    for name in TRAINING_ONLY:
        vars(model).pop(name, None)
    exported = out / "digits.joblib"
    joblib.dump(model, exported, compress=3)
    print(f"exported {len(trained) // 1000} kB of training as {exported.stat().st_size // 1000} kB", flush=True)


if __name__ == "__main__":
    main()
