"""An app of Django for tests."""
