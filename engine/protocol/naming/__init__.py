"""A name server's decisions and a broker's registration with name servers."""
