"""What a maintainer asks for when a broker puzzles somebody: collected in one file, without bodies and secrets."""
