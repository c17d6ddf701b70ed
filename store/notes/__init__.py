"""Slipstream's own notes in a store's root: epochs, peers, another history, a start; how far the log was synced."""
