"""Reads whose sealed segments Spark reads itself: their side files as Parquet, the rest of the log through splits."""
