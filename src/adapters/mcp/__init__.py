"""A Model Context Protocol server over the API: an AI agent acts as one API key, with its grants, limits and approvals."""
