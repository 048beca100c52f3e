"""Check the schemas beside this file, and samples against them.

    python spec/validate_samples.py [sample.json ...]

Without arguments every file in examples/ is checked. A file whose name starts with "interswarm_" is
mail between swarms, any other a message. Exits with 1 when anything is wrong, 2 when it cannot run.
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

try:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError
    from referencing import Registry, Resource
except ImportError as error:
    print(f"this script needs jsonschema and referencing: {error}", file=sys.stderr)
    sys.exit(2)

HERE = Path(__file__).resolve().parent
CORE = "MAIL-core.schema.json"
INTERSWARM = "MAIL-interswarm.schema.json"


def date_time(value: object) -> bool:
    """Tell whether a text is a date and time with an offset; anything else is not our affair."""
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def load_validators(folder: Path = HERE) -> dict[str, Draft202012Validator]:
    """Return a validator per schema file, each knowing the other's definitions.

    Raises:
        SchemaError: one of the schemas is not a schema.
    """
    schemas: dict[str, Any] = {
        name: json.loads((folder / name).read_text("utf-8")) for name in (CORE, INTERSWARM)
    }
    registry: Registry[Any] = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in schemas.values()
    )
    formats = FormatChecker(())
    formats.checks("date-time", raises=ValueError)(date_time)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    return {
        name: Draft202012Validator(schema, registry=registry, format_checker=formats)
        for name, schema in schemas.items()
    }


def problems(path: Path, validators: dict[str, Draft202012Validator]) -> list[str]:
    """Return what is wrong with a sample, one line each."""
    try:
        sample = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        return [f"cannot be read: {error}"]
    validator = validators[INTERSWARM if path.name.startswith("interswarm_") else CORE]
    return [
        f"{error.json_path}: {error.message}"
        for error in sorted(validator.iter_errors(sample), key=lambda error: error.json_path)
    ]


def main(arguments: list[str]) -> int:
    """Check the given samples, or all; return the exit status."""
    try:
        validators = load_validators()
    except (OSError, ValueError, SchemaError) as error:
        print(f"[INVALID] schema: {error}")
        return 1
    samples = [Path(name) for name in arguments] or sorted((HERE / "examples").glob("*.json"))
    if not samples:
        print("[INVALID] there are no samples")
        return 1
    wrong = 0
    for sample in samples:
        found = problems(sample, validators)
        wrong += bool(found)
        print(f"[{'INVALID' if found else 'VALID'}] {sample.name}")
        for problem in found:
            print(f"    {problem}")
    print(f"{len(samples)} samples, {wrong} invalid")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
