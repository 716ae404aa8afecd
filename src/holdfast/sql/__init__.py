"""The engine: SQL files, and the names of the units that a database may do without."""
