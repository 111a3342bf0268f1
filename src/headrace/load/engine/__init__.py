"""The load tester's engine: connections, intended times, books."""
