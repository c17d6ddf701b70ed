"""Metadata tables: what a store says of itself, as rows."""
