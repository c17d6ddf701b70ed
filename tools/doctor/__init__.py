"""`slipstream doctor`: a running node looked at from outside, a row for each check, with the command to type next."""
