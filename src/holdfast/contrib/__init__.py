"""Integrations with web frameworks. Each needs the framework, and is imported only by its users."""
