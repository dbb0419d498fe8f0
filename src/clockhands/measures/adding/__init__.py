"""What adding a code does to the token: whether it is found again, and the terms of a score."""
