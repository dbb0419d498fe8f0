"""Effects of adding a code to tokens: whether a token can still be identified, and the terms of a score."""
