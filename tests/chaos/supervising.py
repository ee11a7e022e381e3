"""The supervisor of a stack whose processes are killed all the time: it starts them again at once, every time.

`python -m tests.chaos.supervising OPTIONS`. The usual one waits longer after each death, up to 30 s, which is right for
a broken service and would make a test of a hundred deaths an hour long. So it is with what says how soon a job whose
supervisor was killed is given up: the services are told what TIDEGATE_LOST_AFTER_SECONDS is here.
"""

import json
import sys
from functools import partial
from unittest import mock

from infra.embedded import serve, stack
from infra.embedded.keeper import Backoff
from infra.embedded.options import Options
from infra.embedded.supervisor import Supervisor

if __name__ == "__main__":
    at_once = partial(Supervisor, backoff=Backoff(longest_seconds=0.2))
    kept = (*stack._KEPT_VARIABLES, "TIDEGATE_LOST_AFTER_SECONDS")
    with mock.patch.object(serve, "Supervisor", at_once), mock.patch.object(stack, "_KEPT_VARIABLES", kept):
        sys.exit(serve.serve(Options.from_json(json.loads(sys.argv[1]))))
