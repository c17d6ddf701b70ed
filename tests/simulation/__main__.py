"""Plays many seeds, or one with what happened in it: `python -m tests.simulation --seed 7`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.scenario import Failed, Play


def main() -> int:
    """Play them; 0 when no promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--parting", action="store_true")
    asked = parser.parse_args()
    began, failed, events, acknowledged = time.process_time(), 0, 0, 0
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    for seed in seeds:
        try:
            outcome = Play(seed, asked.parting).run()
            events += outcome.events
            acknowledged += outcome.acknowledged
        except Failed as error:
            failed += 1
            print(error if asked.seed is not None or failed == 1 else str(error).partition("\n")[0], flush=True)
            if asked.seed is not None:
                raise
    print(
        len(seeds),
        "seeds",
        failed,
        "failed",
        events,
        "events",
        acknowledged,
        "acknowledged",
        f"{time.process_time() - began:.1f} s",
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
