"""The outbox: the dispatcher claims events and sends them to the sinks of their subscriptions."""
