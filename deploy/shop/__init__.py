"""An application to deploy: replace it by your own."""
