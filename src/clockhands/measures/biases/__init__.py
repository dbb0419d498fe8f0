"""What is added to scores: how large, how far a head sees, where buckets begin, which distances are one to a head."""
