"""Arrow columns of records where they lie: of a mapped segment, or of a frame that a broker sent."""
