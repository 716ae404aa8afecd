"""Business processes: scaffold a new one, check the rules, apply its files, inspect an instance."""
