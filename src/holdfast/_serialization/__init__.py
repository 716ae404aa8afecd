"""From functions to JSON and back, and text that PostgreSQL can store."""
