"""A broker's region directory: made, found again, removed; notes and requests in it; what a killed broker left."""
