"""Build our wheel without hatchling, which tests do not have and may not fetch.

pip asks this module instead when it is first on the path: it packs what ``pyproject.toml`` names,
with the metadata that an installation needs.
"""

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None
) -> str:
    """Write a wheel of the project in the current folder; return its name."""
    settings = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    target = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {source: Path(source).name for source in target["packages"]}
    folders |= target["force-include"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    files = {
        f"{inside}/{path.relative_to(source).as_posix()}": path.read_bytes()
        for source, inside in folders.items()
        for path in Path(source).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    scripts = "".join(f"{name} = {place}\n" for name, place in project["scripts"].items())
    kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    files |= {
        f"{stem}.dist-info/METADATA": about.encode(),
        f"{stem}.dist-info/WHEEL": kind.encode(),
        f"{stem}.dist-info/entry_points.txt": f"[console_scripts]\n{scripts}".encode(),
    }
    record = f"{stem}.dist-info/RECORD"
    name = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w") as wheel:
        lines = [f"{record},,\n"]
        for inside, content in files.items():
            wheel.writestr(inside, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{inside},sha256={digest.decode()},{len(content)}\n")
        wheel.writestr(record, "".join(lines))
    return name
