"""The supervisor of a detached stack: `python -m infra.embedded OPTIONS`, with the options as JSON."""

import json
import sys

from infra.embedded.options import Options
from infra.embedded.serve import serve

if __name__ == "__main__":
    sys.exit(serve(Options.from_json(json.loads(sys.argv[1]))))
