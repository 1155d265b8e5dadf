"""Users of conda, users of pip and CI get the same packages: environment.yml, pyproject.toml and the lock agree."""

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import rattler
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
TOOLS = {"python", "pip", "make"}  # what conda itself installs; everything else comes from the lock


def read_lock():
    """The lock's requirements by name, and the names of those without a hash."""
    entries = (ROOT / "requirements.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    entries = [entry for entry in entries if entry.strip() and not entry.lstrip().startswith("#")]
    found = [Requirement(re.split(r"\s--hash=", entry)[0]) for entry in entries]
    unhashed = [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry)]
    return found, unhashed


LOCK, UNHASHED = read_lock()


def conda_specs():
    return [rattler.MatchSpec(spec, strict=True) for spec in CONDA["dependencies"] if isinstance(spec, str)]


def test_conda_installs_the_tools_and_pip_the_lock():
    assert set(CONDA) == {"name", "channels", "dependencies"}
    assert CONDA["channels"] == ["conda-forge"]
    specs = {spec.name.normalized: spec for spec in conda_specs()}
    assert {"python", "pip"} <= set(specs) <= TOOLS, "other packages belong into pyproject.toml"
    assert all(spec.version is None for name, spec in specs.items() if name != "python")
    pip = [entry for entry in CONDA["dependencies"] if not isinstance(entry, str)]
    assert pip == [{"pip": ["-r requirements.txt"]}], "conda must install what the lock installs, and no more"


def test_conda_and_pip_accept_the_same_pythons():
    accepted = SpecifierSet(PROJECT["project"]["requires-python"])
    conda = next(rattler.VersionSpec(str(spec.version)) for spec in conda_specs() if spec.name.normalized == "python")
    for version in [f"3.{minor}.{patch}" for minor in range(6, 25) for patch in (0, 1, 99)]:
        assert conda.matches(rattler.Version(version)) == (version in accepted), f"Python {version}"


def test_the_lock_pins_every_direct_dependency():
    direct = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["test"]]
    missing = {canonicalize_name(Requirement(each).name) for each in direct} - {
        canonicalize_name(requirement.name) for requirement in LOCK
    }
    assert not missing, "run `make lock`"
    for requirement in LOCK:
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), f"{requirement} is not pinned"
    for each in map(Requirement, direct):
        for pinned in LOCK:
            if canonicalize_name(pinned.name) == canonicalize_name(each.name):
                assert str(pinned.specifier)[2:] in each.specifier, f"the lock has {pinned}, pyproject.toml {each}"


def test_every_pin_has_a_hash():
    assert LOCK and not UNHASHED


def test_no_file_names_a_package_index():
    assert "://" not in (ROOT / "requirements.txt").read_text(encoding="utf-8")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
    hosts = re.compile(
        rb"pypi\.(?:org|python)|python" rb"hosted\.org|registry\.npm|file:///|--(?:extra-)?index-url[ =]"
    )
    files = [ROOT / name for name in listed if name] or [ROOT / "requirements.txt", ROOT / "pyproject.toml"]
    found = [path.relative_to(ROOT) for path in files if path.is_file() and hosts.search(path.read_bytes())]
    assert [path.as_posix() for path in found if path.name != Path(__file__).name] == []


def test_this_python_has_the_locked_versions():
    wanted = [each for each in LOCK if each.marker is None or each.marker.evaluate()]
    installed = {each.name: importlib.metadata.version(each.name) for each in wanted}
    wrong = [
        f"{each} is locked, {installed[each.name]} installed"
        for each in wanted
        if installed[each.name] not in each.specifier
    ]
    assert not wrong, "\n".join(wrong)
