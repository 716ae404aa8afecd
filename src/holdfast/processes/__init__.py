"""Business processes: write a new one, prove that one keeps the rules, and look at one."""
