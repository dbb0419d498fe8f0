"""The lab: trains small models with each encoding and compares them."""
