"""A running broker's queues as another process of its host reads them: mapped, and never written."""
