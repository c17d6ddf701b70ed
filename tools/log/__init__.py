"""`slipstream log`: a store read, compared, checked and mended from the command line."""
