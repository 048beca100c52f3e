"""``make fuzz``: what the suite tries a little of, for some minutes and from a new seed."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.openapi import WHO, run
from tests.fuzz.target import ROOT, target

BESIDE = ("tests/fuzz/test_raw.py", "tests/fuzz/test_bodies.py", "tests/fuzz/test_repeats.py")


def main() -> int:
    """Fuzz, print what was found, and return 1 if anything was."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="per operation and phase")
    parser.add_argument("--effort", type=int, default=20, help="times what the suite tries")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}; repeat with FUZZ_ARGS='--seed {arguments.seed}'", flush=True)
    found = [_by_the_document(flags, arguments) for flags in ((), ("--shipped-limits",))]
    found.append(_beside_the_document(arguments))
    return int(any(found))


def _by_the_document(flags: tuple[str, ...], arguments: argparse.Namespace) -> int:
    """Run schemathesis as everybody; return how many runs found something."""
    codes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with target(f"sqlite:///{folder}/mail.db", *flags) as shot:
            for who in WHO:
                made = run(shot, who, folder, examples=arguments.examples, seed=arguments.seed)
                print(f"schemathesis as {who}", *flags, "found something:" * bool(made.code))
                print(made.text if made.code else made.text.splitlines()[-1], flush=True)
                codes.append(made.code)
    return sum(map(bool, codes))


def _beside_the_document(arguments: argparse.Namespace) -> int:
    options = ("--timeout=3600", f"--hypothesis-seed={arguments.seed}", "-q")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *BESIDE],
        cwd=ROOT,
        env=dict(
            os.environ,
            FUZZ_EFFORT=str(arguments.effort),
            FUZZ_FIRST_SEED=str(arguments.seed),
        ),
        check=False,
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
