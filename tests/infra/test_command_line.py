import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra import cli
from infra.local import PARTS
from infra.local.home import CHECKOUT, Home, write_json

RUN = CliRunner()
VERBS = [name for verbs in cli.available().values() for name in verbs]


def test_the_table_names_each_verb_once_and_help_shows_them() -> None:
    shown = RUN.invoke(cli.app, ["--help"])
    assert shown.exit_code == 0
    assert len(VERBS) == len(set(VERBS))
    assert all(f" {name} " in shown.stdout for name in VERBS)


def test_help_imports_no_verb_and_no_client_library() -> None:
    code = (
        "import sys, json; sys.argv = ['headrace', '--help']\n"
        "import infra.cli\n"
        "try: infra.cli.main()\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    verbs = {f"infra.cli.{verb.module}" for verbs in cli.VERBS.values() for verb in verbs.values()}
    assert not loaded & (verbs | {"confluent_kafka", "polars", "faust", "fastapi"})


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_examples(verb: str) -> None:
    shown = RUN.invoke(cli.app, [verb, "--help"])
    assert shown.exit_code == 0
    if "COMMAND" not in shown.stdout:
        assert "Examples" in shown.stdout or f"headrace {verb}" in shown.stdout


def test_an_unknown_verb_is_an_error() -> None:
    assert RUN.invoke(cli.app, ["downn"]).exit_code == 2


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import infra.cli; infra.cli.main()", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


def test_errors_are_sentences(home: Home) -> None:
    done = headrace("up", "kafak")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no such part: kafak")
    assert "Traceback" not in done.stderr


def test_status_lists_every_part(home: Home) -> None:
    done = headrace("status")
    assert done.returncode == 0
    assert all(part in done.stdout for part in PARTS)


def test_config_shows_what_was_launched_and_hides_passwords(home: Home) -> None:
    write_json(home.stack_file, {"redis": {"url": "redis://:s3cret@127.0.0.1:7/0"}})
    assert "HEADRACE_REDIS__URL='redis://:***@127.0.0.1:7/0'" in headrace("config", "show").stdout
    shown = headrace("config", "show", "--no-redact").stdout
    assert "HEADRACE_REDIS__URL=redis://:s3cret@127.0.0.1:7/0" in shown


def test_logs_shows_the_last_lines(home: Home) -> None:
    home.log("kafka").parent.mkdir(parents=True)
    home.log("kafka").write_text("one\ntwo\nthree\n")
    assert headrace("logs", "kafka", "-n", "2").stdout == "two\nthree\n"


def test_clean_says_what_it_deletes_and_asks(home: Home) -> None:
    home.data("redis").mkdir(parents=True)
    kept = subprocess.run(
        [sys.executable, "-c", "import infra.cli; infra.cli.main()", "clean"],
        cwd=CHECKOUT, input="n\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert kept.returncode == 1
    assert "data" in kept.stderr
    assert home.root.exists()
    assert headrace("clean", "--yes").returncode == 0
    assert not Path(home.root).exists()
