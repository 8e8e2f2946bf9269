"""What a ledger must hold, from its two topics alone and without any code of the product.

`python -m tests.chaos.recount_ledger --bootstrap … --registry … --commands … --events … --acks …
--out DIR` applies the reader rule to the events row by row, moves the money of every accepted
event between plain dictionaries, and holds each verdict that clients were told against the log.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from tests.chaos.recount import Decoder, records

DECISION = struct.Struct(">q16sqq")
NEVER_REMEMBERED = {"duplicate", "key_reused", "failed", "unreadable", "too_large"}


@dataclass
class Found:
    """Of one run; whatever is `wrong` is so in words."""

    counts: Counter[str] = field(default_factory=Counter)
    stale: set[tuple[int, int]] = field(default_factory=set)
    """Partition and offset of events behind another writer's claim."""
    wrong: list[str] = field(default_factory=list)

    def check(self, right: bool, text: str) -> None:
        if not right:
            self.wrong.append(text)


def headers_of(message: Any) -> dict[str, bytes]:
    return dict(message.headers() or [])


def accepted(messages: list[Any], decode: Decoder, found: Found) -> list[tuple[Any, str, Any, int]]:
    """Message, record, row and command offset of the events that count (rule A2).

    A claim begins an epoch, named by its offset and nonce. An event counts if it was decided in
    the epoch that is current where it lies, and has the next number.
    """
    epoch, seq, source, kept = (-1, b""), -1, -1, []
    nonces: dict[bytes, int] = {}
    for message in messages:
        name, row = decode(message.value())
        if name.endswith("OwnershipClaimed"):
            epoch = (message.offset(), bytes.fromhex(row["nonce"]))
            nonces[epoch[1]] = message.offset()
            found.counts["claims"] += 1
            continue
        first, raw = (message.headers() or [("", b"")])[0]
        assert first == "headrace-decision" and len(raw) == DECISION.size
        claim, nonce, number, command = DECISION.unpack(raw)
        if (claim, nonce) != epoch:
            found.counts["stale"] += 1
            found.stale.add((message.partition(), message.offset()))
            found.check(nonces.get(nonce) == claim, f"{message.offset()}: of a claim never read")
            continue
        if number != seq + 1:
            found.counts["out of sequence"] += 1
            continue
        found.check(command > source, f"{message.offset()}: command {command} after {source}")
        seq, source = number, command
        kept.append((message, name.rpartition(".")[2], row, command))
    return kept


class Money:
    """Accounts of one partition: currency, floor, balance, debits held, credits held."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.accounts: dict[tuple[str, str], list[Any]] = {}
        self.holds: dict[tuple[str, str], list[Any]] = {}
        self.posted: Counter[tuple[str, str]] = Counter()

    def account(self, book: str, name: str, currency: str) -> list[Any]:
        return self.accounts.setdefault((book, name), [currency, None, 0, 0, 0])

    def opened(self, row: Any) -> None:
        self.found.check((row["book"], row["account"]) not in self.accounts, "opened twice")
        low = None if row["overdraft"] is None or row["side"] == "debit" else -row["overdraft"]
        self.account(row["book"], row["account"], row["currency"])[1] = low

    def _move(self, book: str, legs: list[Any], sign: int, debit: int, credit: int) -> None:
        for leg in legs:
            giver = self.account(book, leg["debit_account"], leg["currency"])
            taker = self.account(book, leg["credit_account"], leg["currency"])
            for one in (giver, taker):
                self.found.check(one[0] == leg["currency"], f"{one} moves {leg['currency']}")
            giver[debit] += (-sign if debit == 2 else sign) * leg["amount"]
            taker[credit] += sign * leg["amount"]

    def transferred(self, row: Any) -> None:
        book, key = row["book"], (row["book"], row["transfer_id"])
        before = {name: one[2] for name, one in self.accounts.items() if name[0] == book}
        if row["change"] == "held":
            self.found.check(key not in self.holds, f"{key} is held twice")
            self.holds[key] = row["legs"]
            self._move(book, row["legs"], 1, 3, 4)
        else:
            if key in self.holds:
                self._move(book, self.holds.pop(key), -1, 3, 4)
            if row["change"] == "posted":
                self.posted[key] += 1
                self._move(book, row["legs"], 1, 2, 2)
        sums: Counter[str] = Counter()
        for posting in row["postings"]:
            sums[posting["currency"]] += posting["amount"]
            account = self.accounts[book, posting["account"]]
            told = [posting[n] for n in ("currency", "balance", "debits_held", "credits_held")]
            self.found.check([account[0], *account[2:]] == told, f"{key}: {told}, is {account}")
            moved = account[2] - before.get((book, posting["account"]), 0)
            self.found.check(moved == posting["amount"], f"{key}: moved {moved}")
        self.found.counts["imbalance"] += sum(1 for total in sums.values() if total)
        self._whole(book)

    def _whole(self, book: str) -> None:
        """At this offset: currencies add up to nothing, and nobody is below the floor."""
        sums: Counter[str] = Counter()
        for (where, _), (currency, low, balance, debits, _) in self.accounts.items():
            if where == book:
                sums[currency] += balance
                self.found.counts["negative"] += low is not None and balance - debits < low
        self.found.counts["imbalance"] += sum(1 for total in sums.values() if total)


class Keys:
    """One effect for each key, however often its command was sent."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.first: dict[str, tuple[str, int]] = {}
        self.effects: Counter[str] = Counter()

    def answered(self, headers: dict[str, bytes], at: int, name: str, row: Any) -> None:
        key = headers["headrace-idempotency-key"].decode()
        print_ = headers["headrace-fingerprint"].decode()
        code = row["code"] if name == "CommandRejected" else ""
        known = self.first.get(key)
        self.found.counts[code or "effect"] += 1
        self.effects[key] += not code
        if known is None:
            self.found.check(code not in ("duplicate", "key_reused"), f"{key}: {code} of nothing")
            if code not in NEVER_REMEMBERED:
                self.first[key] = (print_, at)
        elif known[0] == print_:
            right = code == "duplicate" and row["original_offset"] == known[1]
            self.found.check(right, f"{key}: {name} {code} instead of a repeat of {known}")
        else:
            self.found.check(code == "key_reused", f"{key}: {name} {code} for another command")


def told(ack: dict[str, Any], events: dict[Any, Any], keys: Keys, found: Found) -> None:
    """Hold a verdict against the accepted event that it names."""
    place, key = f"{ack['key']} at {ack['partition']}/{ack['offset']}", ack["key"]
    event = events.get((ack["partition"], ack["offset"]))
    if event is None:
        found.counts["acked_not_on_log"] += 1
        found.counts["stale told"] += (ack["partition"], ack["offset"]) in found.stale
        found.wrong.append(f"{place}: told, but no event that counts: {ack}")
        return
    headers, name, row = event
    found.counts["replays"] += ack["replay"]
    found.check(headers["headrace-idempotency-key"].decode() == key, f"{place}: another's event")
    body = ack["body"]
    if name == "CommandRejected":
        right = (ack["status"], body["code"]) == (row["status"], row["code"])
        right = right and body["detail"] == row["detail"]
    elif name == "AccountOpened":
        right = ack["status"] == 201 and body["account"] == row["account"]
    else:
        names = ("account", "currency", "amount", "balance")
        postings = [{n: one[n] for n in names} for one in row["postings"]]
        right = (body["transfer_id"], body["state"]) == (row["transfer_id"], row["change"])
        right = right and body["postings"] == postings and body["legs"] == row["legs"]
        right = right and ack["status"] == (201 if row["change"] in ("held", "posted") else 200)
    found.check(right, f"{place}: told {ack}, the log has {name} {row}")
    if ack["replay"]:
        found.check(keys.first[key][1] == ack["offset"], f"{place}: a replay of another event")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "registry", "commands", "events", "acks", "out"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    found, decode = Found(), Decoder(given.registry)
    commands = records(given.bootstrap, given.commands)
    balances, events, all_keys = [], {}, {}
    effects: Counter[str] = Counter()
    for partition, messages in records(given.bootstrap, given.events).items():
        money, keys = Money(found), Keys(found)
        all_keys[partition] = keys
        asked = {message.offset(): message for message in commands[partition]}
        answered: set[int] = set()
        for message, name, row, source in accepted(messages, decode, found):
            headers, command = headers_of(message), asked[source]
            answered.add(source)
            sent = headers_of(command)
            found.check(
                all(headers.get(n) == v for n, v in sent.items()), f"{source}: other headers"
            )
            keys.answered(headers, message.offset(), name, row)
            events[partition, message.offset()] = headers, name, row
            if name == "AccountOpened":
                money.opened(row)
            elif name == "TransferRecorded":
                wanted = decode(command.value())[1]
                found.check(row["transfer_id"] == wanted["transfer_id"], f"{source}: another's")
                if "legs" in wanted:
                    found.check(row["legs"] == wanted["legs"], f"{source}: other legs")
                money.transferred(row)
        found.check(answered == set(asked), f"{partition}: {len(set(asked) - answered)} unanswered")
        found.counts["double"] += sum(1 for n in money.posted.values() if n > 1)
        effects += keys.effects
        balances += [
            (book, name, currency, balance, debits, credits, partition)
            for (book, name), (currency, _, balance, debits, credits) in money.accounts.items()
        ]
    found.counts["double"] += sum(1 for n in effects.values() if n > 1)
    by_key: dict[str, set[Any]] = defaultdict(set)
    for line in Path(given.acks).read_text().splitlines():
        ack = json.loads(line)
        told(ack, events, all_keys[ack["partition"]], found)
        found.counts["acks"] += 1
        if ack["body"].get("code") != "key_reused":
            by_key[ack["key"]].add((ack["status"], ack["offset"], json.dumps(ack["body"])))
    for key, answers in by_key.items():
        found.check(len(answers) == 1, f"{key}: told {answers}")
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    names = ["book", "account", "currency", "balance", "debits_held", "credits_held", "_partition"]
    pl.DataFrame(balances, schema=names, orient="row").write_parquet(out / "balances.parquet")
    (out / "found.json").write_text(json.dumps({**found.counts, "wrong": found.wrong[:20]}))


if __name__ == "__main__":
    main()
