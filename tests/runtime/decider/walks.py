"""Random walks through worlds."""

from __future__ import annotations

from dataclasses import dataclass

from tests.runtime.decider.counting import DEADLINE_MS
from tests.runtime.decider.world import World


@dataclass(frozen=True)
class Chances:
    """How often each thing happens in a walk."""

    command: float = 1.2
    start: float = 0.5
    read: float = 4.0
    decide: float = 4.0
    tick: float = 2.0
    wait: float = 1.0
    save: float = 0.5
    append: float = 6.0
    reorder: float = 0.2
    repeat: float = 0.3
    lose: float = 0.3
    truncate: float = 0.1
    retain: float = 0.0


def walk(seed: int, steps: int = 150, chances: Chances | None = None) -> World:
    """A random walk, then calm. Raises `Violation`."""
    world = World(seed)
    pick = world.random
    names = list(Chances.__dataclass_fields__)
    weights = [getattr(chances or Chances(), name) for name in names]
    for _ in range(steps):
        slot = pick.randrange(len(world.processes))
        nonce = pick.choice(list(world.flying)) if world.flying else None
        last = len(world.flying[nonce]) - 1 if nonce else 0
        match pick.choices(names, weights)[0]:
            case "command":
                key = pick.choice(["", "", "k1", "k2"])
                world.command(pick.choice("ab"), pick.choice([0, 0, 1]), key)
            case "append" | "reorder" | "repeat" | "lose" if nonce is None:
                pass
            case "append" if nonce:
                world.append(nonce)
            case "reorder" if nonce:
                world.append(nonce, pick.randint(0, last))
            case "repeat" if nonce:
                world.append(nonce, keep=True)
            case "lose" if nonce:
                world.lose(nonce, pick.randint(0, last), reported=pick.random() < 0.5)
            case "wait":
                world.wait(pick.choice([10, 300, DEADLINE_MS + 1]))
            case "read" | "decide" as act:
                getattr(world, act)(slot, pick.randint(1, 4))
            case "start" | "tick" | "save" as act:
                getattr(world, act)(slot)
            case "truncate" | "retain" as act:
                getattr(world, act)()
    world.calm(pick.choice(["early", "late", "never"]))
    return world
