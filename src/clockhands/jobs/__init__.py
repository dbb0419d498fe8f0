"""Many runs at once: processes and Ray, databases that survive a killed run, and the survey of many models."""
