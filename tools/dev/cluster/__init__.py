"""`make cluster-demo`: Spark and a replicated log on hosts made of namespaces, and who read what from where."""
