"""`mcp`: read-only tools for an agent."""

from eoctl.cli.limits import Limits
from eoctl.cli.options import Connection
from recovery.errors import Exit


def mcp(connection: Connection, limits: Limits) -> int:
    """Serve what looks to an agent, as tools of the Model Context Protocol on stdin and stdout.

    One cluster, fixed at the start; nothing can be changed, no record is shown. --timeout bounds
    each call.
    """
    from eoctl.cli.agent import server

    context = connection.one()
    desk = server.desk(context, limits.settings(context), limits.interval, connection.seconds())
    server.serve(desk)
    return Exit.OK
