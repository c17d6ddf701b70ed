"""What clients share, on disk: tables and offsets, written in turns."""
