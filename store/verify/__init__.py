"""What is wrong in a store, and which of its bytes nothing protects."""
