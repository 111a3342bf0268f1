"""The HTTP face: requests in, jobs to the engine, answers out. Raw ASGI."""
