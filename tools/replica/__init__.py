"""`slipstream replica`, `promote`, `demote`: two logs compared, one cut back to the other, roles changed."""
