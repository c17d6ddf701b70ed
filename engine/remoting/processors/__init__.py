"""Who answers what clients and administrators ask."""
