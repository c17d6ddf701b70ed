"""What retention and audit have to know of files: which are expired, which are held by a reader, which have changed."""
