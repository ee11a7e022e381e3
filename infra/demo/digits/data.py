"""The handwritten digits that ship inside scikit-learn, parted the same way in every step."""

from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def digits() -> tuple[Any, Any, Any, Any]:
    """Images to learn from, images to judge by, and the labels of both."""
    images, labels = load_digits(return_X_y=True)
    return tuple(train_test_split(images / 16.0, labels, test_size=0.25, random_state=7, stratify=labels))
