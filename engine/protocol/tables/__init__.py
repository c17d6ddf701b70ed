"""Topics, groups, offsets and registrations as values, and as the bodies that carry them."""
