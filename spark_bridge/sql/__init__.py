"""A store's names in SQL: tables of a database, and table functions."""
