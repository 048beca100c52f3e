"""Importing the model layer loads no vendor."""

import subprocess
import sys

HEAVY = ("litellm", "openai", "langgraph", "langmem", "aiohttp", "httpx", "fastapi")
MODULES = (
    "mail.llm.ask",
    "mail.llm.completions",
    "mail.llm.compress",
    "mail.llm.failures",
    "mail.llm.litellm_model",
    "mail.llm.resolve",
    "mail.llm.scripted",
    "mail.factories.base",
    "mail.factories.action",
    "mail.factories.supervisor",
    "mail.utils.store",
)


def test_importing_models_and_factories_loads_no_vendor() -> None:
    code = (
        f"import sys, importlib\n[importlib.import_module(m) for m in {MODULES!r}]\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_library_reads_nothing_remote_and_no_env_file() -> None:
    code = (
        "import os\nfrom mail.llm import litellm_model\nlitellm_model.load_library()\n"
        "print(os.environ['LITELLM_LOCAL_MODEL_COST_MAP'], os.environ['LITELLM_MODE'])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["True", "PRODUCTION"]
