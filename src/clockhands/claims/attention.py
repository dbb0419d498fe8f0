"""Claims about attention: what it can tell of order without a code, and with one."""
