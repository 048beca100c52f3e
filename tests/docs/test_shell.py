"""The shell blocks on the pages run, and show what the pages show."""

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, SHELL, blocks, name_of
from tests.docs.places import checkout, replacements, variables
from tests.docs.shell import SERVER, Reader, steps

pytestmark = pytest.mark.e2e
