"""What the numbers of tokens are like: how large, whether each token has its own, how far a step goes, how spread."""
