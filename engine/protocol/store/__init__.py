"""Decisions over files and rates: what retention deletes, what a broker's figures of its puts are."""
