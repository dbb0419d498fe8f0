"""Whether attention can tell one order of the same words from another, without a position code and with each."""
