"""The survey: audits many targets in parallel and keeps one row for each in a store."""
