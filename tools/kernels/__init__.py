"""Commands about compiled code: warm."""
