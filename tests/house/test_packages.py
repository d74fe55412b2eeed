"""The list of packages, the links in the root, and the guide in each folder."""

import ast
import re

import pytest

from tests.conftest import FIRST, SESSIONS
from tests.house.tree import PACKAGES, PROJECT, ROOMS, ROOT


def test_the_packages_list_is_the_tree() -> None:
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(PACKAGES)


def test_packages_lie_where_their_names_say() -> None:
    # An editable install is the root on the path: nothing may need a mapping.
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"": "."}
    for name, folder in PACKAGES.items():
        assert (ROOT / name.replace(".", "/")).samefile(folder), f"{name} is not at {folder}"


def test_package_data_lies_where_the_wheel_looks_for_it() -> None:
    for package, names in PROJECT["tool"]["setuptools"]["package-data"].items():
        for name in names:
            assert any(PACKAGES[package].glob(name)), f"{package} has no {name}"


@pytest.mark.parametrize(("name", "folder"), ROOMS.items())
def test_root_rooms_are_linked_into_the_package(name: str, folder: str) -> None:
    link = ROOT / "shardmq" / name
    assert link.is_symlink()
    assert link.samefile(ROOT / folder)


def test_the_cmd_folder_does_not_shadow_the_standard_librarys_cmd() -> None:
    assert not (ROOT / "cmd" / "__init__.py").exists()


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "shardmq"])
def test_folder_guides_name_their_files(package: str) -> None:
    folder = PACKAGES[package]
    guide = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    names = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    names += [f"{path.name}/" for path in folder.iterdir() if (path / "__init__.py").exists()]
    assert [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}", guide)] == []
    named = re.findall(r"^\s*(\w+(?:\.py|/))\s", guide, re.MULTILINE)
    assert [name for name in named if name not in names] == [], "the guide names files that are gone"


def test_what_is_begun_first_exists() -> None:
    assert [file for file in (*FIRST, *SESSIONS) if not (ROOT / file).is_file()] == []
