"""`slipstream run`: the main job on real input, and what it prints."""
