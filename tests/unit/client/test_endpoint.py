"""Where the server is: a file that cannot be used says what to do."""

from pathlib import Path

import pytest

from shared.client.endpoint import find_endpoint
from shared.client.errors import NoServer


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": "http://127.0.0.1:1"}'])
def test_a_broken_endpoint_file_says_how_to_get_a_good_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "endpoint.json").write_text(content)
    with pytest.raises(NoServer, match="`tidegate down`, then `tidegate up --detach`"):
        find_endpoint({"TIDEGATE_HOME": str(tmp_path)})
