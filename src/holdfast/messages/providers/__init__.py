"""Providers of e-mail and text messages."""
