"""The MCP server: tools with which an agent inspects tasks and queues and, if it may, acts on them."""
