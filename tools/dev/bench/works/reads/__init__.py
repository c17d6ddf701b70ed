"""Measurements of reads: scans, Spark, Flight, side files, plans; one module each."""
