"""What administrators and monitors ask of a broker: reports, orders, overviews, rates, metrics of clients."""
