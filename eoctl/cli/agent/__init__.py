"""`eoctl mcp`: what looks, as tools that an agent calls over the Model Context Protocol."""
