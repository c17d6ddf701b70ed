"""Who may do what from where: lists of networks, and what an address that is not on them may still ask."""
