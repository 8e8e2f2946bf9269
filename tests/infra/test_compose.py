"""The Compose file against the launcher: two ways to the same parts, names, ports, settings."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local import PARTS, Stack, compose
from infra.local.home import CHECKOUT, Home, read_json
from infra.local.parts import kafka, redis, registry
from streams.runtime.settings import Settings

FILE: dict[str, Any] = yaml.safe_load(compose.FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
TEXT = compose.FILE.read_text()


@pytest.mark.parametrize("part", PARTS.values(), ids=list(PARTS))
def test_every_part_is_a_service_at_the_same_port(part: Any, home: Home) -> None:
    network = SERVICES[part.name].get("network_mode", "").removeprefix("service:")
    published = SERVICES[network or part.name]["ports"]
    pattern = rf"127\.0\.0\.1:\$\{{{part.name.upper()}_PORT:-{part.ports['main']}\}}:\d+"
    assert any(re.fullmatch(pattern, port) for port in published)
    assert part.address(Settings())[1] == part.ports["main"]


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len(published) == len(set(published)) >= len(PARTS)


def test_kafka_has_the_launchers_settings() -> None:
    environment = SERVICES["kafka"]["environment"]
    expected = {f"KAFKA_{k.upper().replace('.', '_')}": v for k, v in kafka.BROKER.items()}
    assert expected.items() <= environment.items()


def test_redis_has_the_launchers_settings() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert all(f"--{name} {value}" in command for name, value in redis.SERVER.items())
    assert "requirepass" in command


def test_the_registry_has_the_launchers_settings() -> None:
    environment = SERVICES["registry"]["environment"]
    expected = {k.upper().replace(".", "_"): v for k, v in registry.STORAGE.items()}
    assert expected.items() <= environment.items()
    assert Settings().registry.url.endswith(registry.API)


def test_versions_are_those_of_the_launcher() -> None:
    jars = read_json(CHECKOUT / "infra" / "local" / "checksums.json")
    for part, artifact in (
        ("kafka", "kafka_2.13:jar"),
        ("registry", "apicurio-registry-app:tar.gz:all"),
        ("cassandra", "cassandra-all:jar"),
    ):
        version = SERVICES[part]["image"].split(":")[1]
        assert any(c.endswith(f":{artifact}:{version}") for c in jars[part]), (part, version)


def test_passwords_are_required_from_the_environment() -> None:
    for name in compose.SECRETS:
        assert re.search(rf"\$\{{{name}:\?", TEXT)
        assert not re.search(rf"\$\{{{name}(:-|-|\}})", TEXT)
    example = (CHECKOUT / "infra" / "docker" / "env.example").read_text()
    assert {line.rstrip("=") for line in re.findall(r"^\w+=.*$", example, re.M)} == set(
        compose.SECRETS
    )


def test_every_name_that_is_referred_to_exists() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        mode = service.get("network_mode", "")
        assert not mode or mode.removeprefix("service:") in SERVICES
        for volume in service.get("volumes", []):
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            assert source in FILE["volumes"] or (CHECKOUT / source).exists(), source


def test_the_apps_settings_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `HEADRACE_` variable of the app is known, and leads to a service of the file."""
    for name in [n for n in os.environ if n.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    for name, value in SERVICES["api"]["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:\?[^}]*\}", "x", value))
    settings = Settings.read()
    hosts = {part.address(settings)[0] for part in PARTS.values()} - {"127.0.0.1"}
    assert hosts == set(PARTS) - {"alertmanager", "prometheus"}


def test_the_app_runs_without_privileges() -> None:
    for name in ("api", "worker"):
        assert SERVICES[name]["read_only"] is True
        assert SERVICES[name]["cap_drop"] == ["ALL"]
    dockerfile = (CHECKOUT / "infra" / "docker" / "Dockerfile").read_text()
    assert re.search(r"^USER headrace$", dockerfile, re.M)


@pytest.fixture
def docker(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` that answers and notes what it is asked; returns the notes."""
    notes = tmp_path / "notes"
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$REDIS_PORT ${{REDIS_PASSWORD:+password}} $*" >> {notes}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    compose.available.cache_clear()
    yield notes
    compose.available.cache_clear()


def test_a_daemon_that_answers_is_used(
    docker: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PARTS, "redis", dataclasses.replace(PARTS["redis"], ready=lambda _: True))
    stack = Stack(home=home)
    url = stack.up(["redis"]).redis.url.get_secret_value()
    port = home.ports()["redis"]["main"]
    assert url == f"redis://:{home.secret('redis')}@127.0.0.1:{port}/0"
    assert stack.down(["redis"]) == ["redis"]
    project = f"-p headrace-{home.tag} -f {compose.FILE}"
    calls = docker.read_text().splitlines()
    assert f"{port} password compose {project} up --detach --no-deps redis" in calls
    assert f"{port} password compose {project} rm --stop --force redis" in calls


def test_without_a_daemon_there_is_no_docker_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    compose.available.cache_clear()
    assert not compose.available()
    compose.available.cache_clear()
