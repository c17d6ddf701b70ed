"""What developers run and users do not have: nothing of it is in the wheel."""
