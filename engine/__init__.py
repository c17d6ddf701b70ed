"""The broker: protocols without I/O, and one thin process shell for each stage of the pipeline."""
