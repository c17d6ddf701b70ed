"""What a broker answers, and what a slave asks its master."""
