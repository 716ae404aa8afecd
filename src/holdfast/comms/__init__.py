"""E-mail and text messages: what is sent, who sends it, and how applications ask for it."""
