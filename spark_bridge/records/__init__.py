"""The executor's part: mapped bytes to Arrow."""
