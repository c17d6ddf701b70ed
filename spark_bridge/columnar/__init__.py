"""Side files of sealed segments: their records' fixed columns as Parquet, believed as far as they prove themselves."""
