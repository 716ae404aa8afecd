"""The dashboard: pages rendered by the server, which also streams the changes of their live part."""
