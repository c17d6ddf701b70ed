"""Schemas by number: asked of a schema registry, or of files that hold its answers. Nothing of rows is known here."""
