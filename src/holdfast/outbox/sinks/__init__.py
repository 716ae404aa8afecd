"""The receivers that come with Holdfast. Each needs the packages of its own extra."""
