"""docs/reference/mcp.md lists the tools of the MCP server, their arguments and their scopes."""

import re
from pathlib import Path

from mcp import Client

from holdfast._connections.session import DatabaseAddress
from holdfast.server.mcp.caller import ToolSession
from holdfast.server.mcp.server import HoldfastServer
from holdfast.server.mcp.write_tools import WRITE_TOOLS
from holdfast.server.site import Site, SiteOptions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mcp.md"


def _cells(line: str) -> list[set[str]]:
    return [set(re.findall(r"`([^`]+)`", cell)) for cell in line.split("|")[1:-1]]


async def test_the_page_lists_every_tool_with_its_arguments() -> None:
    site = Site(DatabaseAddress(lambda: ""), SiteOptions(samples=False), {})
    server = HoldfastServer(ToolSession(site, allow_acts=True))
    async with Client(server) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    scopes = {name: scope for name, _, scope, _ in WRITE_TOOLS}
    lines = [_cells(line) for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {next(iter(cells[0])): cells for cells in lines}
    assert documented.keys() == tools.keys()
    for name, tool in tools.items():
        arguments = set(tool.input_schema["properties"]) - (
            {"reason", "dry_run"} if name in scopes else set()
        )
        assert documented[name][1] == arguments, name
        if name in scopes:
            assert documented[name][2] == {scopes[name]}, name
            assert "reason" in tool.input_schema["required"], name
            assert tool.input_schema["properties"]["dry_run"]["default"] is True, name
        hints = tool.annotations
        assert hints is not None
        assert hints.read_only_hint is (name not in scopes), name
