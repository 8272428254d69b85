"""What every file of the project keeps to."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCHEME = "https?:" + "//"


def committed() -> list[Path]:
    """Every file that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def modules() -> list[Path]:
    """Every Python module that git knows and that says anything at all."""
    return [path for path in committed() if path.suffix == ".py" and path.stat().st_size]


def test_every_module_opens_with_a_docstring() -> None:
    silent = [str(p.relative_to(ROOT)) for p in modules() if not ast.get_docstring(ast.parse(p.read_text("utf-8")))]
    assert silent == []


@pytest.mark.parametrize(
    "address",
    [
        SCHEME + r"[^\s\"'<>]+\.(whl|tar\.gz|tgz|zip|deb)\b",
        SCHEME + r"[^\s\"'<>/]*(pypi|pythonhosted|pytorch)\.org/",
        r"--(extra-)?index-url\b",
    ],
)
def test_no_file_holds_a_download_address(address: str) -> None:
    pattern = re.compile(address)
    here = Path(__file__).resolve()
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in committed()
        if path != here and (match := pattern.search(path.read_text("utf-8", "replace")))
    ]
    assert found == []


def test_no_file_holds_the_path_of_a_checkout() -> None:
    found = [str(path.relative_to(ROOT)) for path in committed() if str(ROOT) in path.read_text("utf-8", "replace")]
    assert found == []


def test_locks_pin_every_package_with_its_hashes() -> None:
    locks = [path for path in committed() if path.suffix == ".lock"]
    assert locks
    for lock in locks:
        pins = re.findall(r"^([A-Za-z0-9_.-]+)(\[[^]]*\])?==(\S+) (.*?)(?=^\S|\Z)", lock.read_text(), re.M | re.S)
        assert pins, lock
        assert [name for name, _, _, rest in pins if "--hash=sha256:" not in rest] == [], lock
