"""How long tests wait for what has to happen."""

from typing import Final

PATIENCE_SECONDS: Final = 120.0
"""For whatever has to happen once: a busy machine that is ten times slower than a quiet one gets there, too. A wait
that ends well takes no longer for it, so no test names a shorter time of its own."""
